"""Checkpoint -> ONNX graph whose vocabulary head runs at the mask positions only, compared with torch before it is kept.

torch and transformers are needed here and nowhere else on a CPU worker, so worker/graph_cache.py runs this file as a
child process: `python -m worker.export FOLDER DESTINATION`. It quantises nothing and keeps no cache.

    input_ids, attention_mask  int64[batch, length]
    token_type_ids             int64[batch, length], only if the model tells segments apart
    mask_rows, mask_columns    int64[masks]
    logits                     float32[masks, vocabulary]
"""

import inspect
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.checkpoint import Checkpoint, fetch, open_checkpoint
from common.errors import StartupError
from worker.cores import usable_cores
from worker.export_check import Deviation, Feed, Logits, compare

if TYPE_CHECKING:
    from torch import Tensor, nn

GRAPH_VERSION = 1
"""Part of the cache's key: raise it when this file writes another graph."""

EMBEDDED_BYTES = 1_500_000_000
"""Larger weights lie beside the graph in model.onnx.data: a protobuf ends at 2 GB."""

_SAFETENSORS = ("model.safetensors", "model.safetensors.index.json", "model-*.safetensors")
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*.bin")
REFUSED = 3
"""The child's exit code when it ends with a StartupError, whose line is then the last of its standard output."""


@dataclass(frozen=True)
class ExportReport:
    """What is written to export.json beside the graph. Deviations are differences of logits from torch."""

    architecture: str
    fingerprint: str
    torch: str
    transformers: str
    onnx: str
    graph_version: int
    export_s: float
    deviations: list[Deviation]


def fetch_weights(checkpoint: Checkpoint) -> list[Path]:
    """The files with the weights: .safetensors if there are any, else .bin. Raises StartupError if there are neither."""
    for patterns in (_SAFETENSORS, _PICKLED):
        folder = fetch(checkpoint.name, checkpoint.revision, patterns)
        found = sorted(file for pattern in patterns for file in folder.glob(pattern))
        if any(file.suffix != ".json" for file in found):
            return found
    raise StartupError(f"{checkpoint.name} holds no weights: neither model.safetensors nor pytorch_model.bin")


def export_onnx(checkpoint: Checkpoint, destination: Path) -> ExportReport:
    """Writes model.onnx (with model.onnx.data if large) and export.json into the folder `destination`.

    model.onnx comes last and in one step, so where it is, all is. Raises StartupError: the head is missing, or the graph
    does not agree with torch.
    """
    torch, transformers = _libraries()
    started = time.monotonic()
    model = MaskedHead.load(checkpoint)
    destination.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=destination) as name:
        temporary = Path(name)
        _write_graph(model, temporary / "model.onnx")
        deviations = compare(_runner(temporary / "model.onnx"), model.reference, checkpoint)
        report = ExportReport(
            architecture=checkpoint.architecture,
            fingerprint=checkpoint.fingerprint,
            torch=torch.__version__,
            transformers=transformers.__version__,
            onnx=version("onnx"),
            graph_version=GRAPH_VERSION,
            export_s=round(time.monotonic() - started, 1),
            deviations=deviations,
        )
        (temporary / "export.json").write_text(json.dumps(asdict(report), indent=1), encoding="utf-8")
        for file in sorted(temporary.iterdir(), key=lambda file: file.name == "model.onnx"):
            os.replace(file, destination / file.name)
    return report


class MaskedHead:
    """A transformers model whose hidden states are cut down to the mask positions before its head sees them.

    A hook on the encoder replaces [batch, length, hidden] by [1, masks, hidden]; a masked-LM head works on each position
    by itself, so what is left of forward() applies it to the masks alone. That holds for any architecture.
    """

    def __init__(self, model: "nn.Module", takes_segments: bool) -> None:
        self.model = model
        self.takes_segments = takes_segments
        self._positions: tuple[Tensor, Tensor] | None = None
        encoder: nn.Module = model.base_model  # type: ignore[assignment]
        encoder.register_forward_hook(self._cut)

    @classmethod
    def load(cls, checkpoint: Checkpoint) -> "MaskedHead":
        from transformers import AutoModelForMaskedLM

        weights = fetch_weights(checkpoint)
        try:
            model, info = AutoModelForMaskedLM.from_pretrained(
                weights[0].parent,
                output_loading_info=True,
                trust_remote_code=False,
                use_safetensors=any(file.suffix == ".safetensors" for file in weights),
                attn_implementation="eager",  # its graph is plain MatMul-Softmax-MatMul, which ONNX Runtime fuses best
                dtype="float32",
            )
        except Exception as error:  # a foreign library's edge: whatever it says, it is about this model's files
            raise StartupError(f"{checkpoint.name} cannot be loaded: {_first_line(error)}") from error
        _refuse_missing(info["missing_keys"], checkpoint)
        segments = getattr(model.config, "type_vocab_size", 0) or 0
        named = "token_type_ids" in inspect.signature(model.forward).parameters
        return cls(model.eval(), named and segments > 1)

    def _cut(self, _module: "nn.Module", _inputs: object, output: Any) -> Any:
        if self._positions is not None:
            output["last_hidden_state"] = output[0][self._positions].unsqueeze(0)
        return output

    def at_masks(self, inputs: "dict[str, Tensor]", mask_rows: "Tensor", mask_columns: "Tensor") -> "Tensor":
        """float32[masks, vocabulary]"""
        self._positions = (mask_rows, mask_columns)
        try:
            logits: Tensor = self.model(**inputs).logits
        finally:
            self._positions = None
        return logits.squeeze(0)

    def reference(self, token_ids: list[int]) -> Any:
        """float32[length, vocabulary] of one row without padding, from the model as it came."""
        import torch

        with torch.inference_mode():
            row = torch.tensor([token_ids])
            return self.model(input_ids=row, attention_mask=torch.ones_like(row)).logits[0].numpy()


def _refuse_missing(missing: Any, checkpoint: Checkpoint) -> None:
    """transformers has already taken tied tensors and computed buffers off this list; what is left would be random."""
    lost = sorted(name for name in missing if not name.endswith("position_ids"))
    if lost:
        shown = ", ".join(lost[:8]) + (f" and {len(lost) - 8} more" if len(lost) > 8 else "")
        raise StartupError(f"{checkpoint.name} lacks trained weights of its masked-LM head: {shown}")


def _write_graph(model: MaskedHead, path: Path) -> None:
    import torch

    class Graph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model.model

        def forward(self, inputs: dict[str, torch.Tensor], rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
            return model.at_masks(inputs, rows, columns)

    names = ["input_ids", "attention_mask"] + ["token_type_ids"] * model.takes_segments
    ids = torch.full((3, 11), 5)  # no size of 0 or 1, which the exporter would take for a constant
    filled = {"attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    inputs = {name: filled.get(name, ids) for name in names}
    dynamic = torch.export.Dim.DYNAMIC
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # torch's words about its own internals; compare() tells whether the graph is right
        program = torch.onnx.export(
            Graph().eval(),
            (inputs, torch.tensor([0, 1, 2, 2]), torch.tensor([1, 2, 3, 5])),
            input_names=[*names, "mask_rows", "mask_columns"],
            output_names=["logits"],
            dynamic_shapes=({name: {0: dynamic, 1: dynamic} for name in names}, {0: dynamic}, {0: dynamic}),
            dynamo=True,
            verbose=False,
        )
        if program is None:
            raise StartupError("torch exported nothing")
        for node in program.model.graph:
            node.metadata_props.clear()  # stack traces, with the paths of this machine
        large = sum(weight.nbytes for weight in model.model.parameters()) > EMBEDDED_BYTES
        program.save(path, external_data=large)


def _runner(graph: Path) -> Callable[[Feed], Logits]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cores()
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    wanted = {given.name for given in session.get_inputs()}

    def run(feed: Feed) -> Logits:
        logits: Logits = session.run(["logits"], {name: array for name, array in feed.items() if name in wanted})[0]
        return logits

    return run


def _libraries() -> tuple[Any, Any]:
    try:
        import onnxscript  # noqa: F401  (the exporter asks for it only after the model is loaded)
        import torch
        import transformers
    except ImportError as error:
        raise StartupError(f"exporting needs {error.name}: pip install 'fillmask[export]'") from None
    quiet: Any = transformers.utils.logging
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()
    return torch, transformers


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"


def main(arguments: list[str]) -> int:
    """Exports FOLDER to DESTINATION. Returns the exit code; the reason of a refusal goes to standard output."""
    folder, destination = arguments
    try:
        export_onnx(open_checkpoint(folder), Path(destination))
    except StartupError as error:
        print(error.message)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
