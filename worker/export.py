"""Checkpoint -> ONNX graph whose vocabulary head runs at the mask positions only, compared with torch before it is kept.

torch and transformers are needed here and nowhere else on a CPU worker, so worker/graph_cache.py runs this file as a
child process: `python -m worker.export FOLDER DESTINATION`. It quantises nothing and keeps no cache.

    input_ids, attention_mask  int64[batch, length]
    token_type_ids             int64[batch, length], only if the model tells segments apart
    mask_rows, mask_columns    int64[masks]
    logits                     float32[masks, vocabulary]
"""

import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common.checkpoint import Checkpoint, open_checkpoint
from common.errors import StartupError
from worker.child import end_with_parent
from worker.export_check import Deviation, compare
from worker.export_graph import Signature, open_graph, write_graph
from worker.masked_head import MaskedHead

GRAPH_VERSION = 1
"""Part of the cache's key: raise it when this file writes another graph."""

REFUSED = 3
"""The child's exit code when it ends with a StartupError, whose line is then the last of its standard output."""

_LACKS = "exporting needs {}: pip install 'fillmask[export]'"


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

    @classmethod
    def of(cls, checkpoint: Checkpoint, deviations: list[Deviation], started_s: float) -> "ExportReport":
        return cls(
            architecture=checkpoint.architecture,
            fingerprint=checkpoint.fingerprint,
            torch=version("torch"),
            transformers=version("transformers"),
            onnx=version("onnx"),
            graph_version=GRAPH_VERSION,
            export_s=round(time.monotonic() - started_s, 1),
            deviations=deviations,
        )


def export_onnx(checkpoint: Checkpoint, destination: Path) -> ExportReport:
    """Writes model.onnx (with model.onnx.data if large) and export.json into the folder `destination`.

    model.onnx comes last and in one step, so where it is, all is. Raises StartupError: the head is missing, or the graph
    does not agree with torch.
    """
    export_libraries()
    started_s = time.monotonic()
    # Eager attention is plain MatMul-Softmax-MatMul, which ONNX Runtime fuses best.
    model = MaskedHead.load(checkpoint, attention="eager")
    destination.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=destination) as name:
        temporary = Path(name)
        _write_graph(model, temporary / "model.onnx")
        run = open_graph(temporary / "model.onnx")
        deviations = compare(lambda feed: run(feed)["logits"], model.reference, checkpoint)
        report = ExportReport.of(checkpoint, deviations, started_s)
        (temporary / "export.json").write_text(json.dumps(asdict(report), indent=1), encoding="utf-8")
        for file in sorted(temporary.iterdir(), key=lambda file: file.name == "model.onnx"):
            os.replace(file, destination / file.name)
    return report


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
    dynamic = torch.export.Dim.DYNAMIC
    signature = Signature(
        arguments=(
            {name: filled.get(name, ids) for name in names},
            torch.tensor([0, 1, 2, 2]),
            torch.tensor([1, 2, 3, 5]),
        ),
        dynamic_shapes=({name: {0: dynamic, 1: dynamic} for name in names}, {0: dynamic}, {0: dynamic}),
        inputs=[*names, "mask_rows", "mask_columns"],
        outputs=["logits"],
    )
    write_graph(Graph(), signature, path)


def check_libraries() -> None:
    """Raises StartupError if one that exporting needs is missing. Imports none."""
    for library in ("onnxscript", "torch", "transformers"):
        if find_spec(library) is None:
            raise StartupError(_LACKS.format(library))


def export_libraries() -> None:
    """Raises StartupError if one is missing, before a model is loaded in vain; makes transformers hold its tongue."""
    try:
        import onnxscript  # noqa: F401
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        raise StartupError(_LACKS.format(error.name)) from None
    quiet: Any = transformers.utils.logging
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()


def main(arguments: list[str]) -> int:
    """Exports FOLDER to DESTINATION. Returns the exit code; the reason of a refusal goes to standard output."""
    end_with_parent()
    folder, destination = arguments
    try:
        export_onnx(open_checkpoint(folder), Path(destination))
    except StartupError as error:
        print(error.message)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
