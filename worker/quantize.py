"""ONNX graph -> static int8 for OpenVINO (NNCF, SmoothQuant), kept only if it agrees with float32 on texts it has not seen.

Static scales do not depend on the batch, so neighbours do not change one's scores; dynamic int8 has them do so. Texts come
in as token ids: a worker has no tokenizer, `fillmask export --int8` (deploy/export.py) has.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.checkpoint import Checkpoint
from common.errors import StartupError
from worker.engines.openvino import INT8_GRAPH

LEAST_AGREEMENT = 0.98
"""Part of the held-out gaps whose first choice must be that of float32."""

_HELD_OUT = 4
"""Every fourth text is not calibrated with but compared on."""

_GAPS_A_TEXT = 3

Feed = dict[str, NDArray[np.int64]]


@dataclass(frozen=True)
class QuantizeReport:
    """What is written to report.json beside the graph. Differences are of probabilities of float32's first choice."""

    fingerprint: str
    openvino: str
    nncf: str
    calibrated_on: int
    compared_gaps: int
    same_first_choice: float
    median_difference: float
    worst_difference: float


def quantize(checkpoint: Checkpoint, graph: Path, rows: Sequence[Sequence[int]], destination: Path) -> QuantizeReport:
    """Writes openvino-int8/ into the folder `destination`, whole or not at all.

    `graph` is our own export in float32; `rows` are token ids of at least a hundred texts, special tokens included.
    Raises StartupError: the libraries are missing, there are too few texts, or the result agrees too little.
    """
    if len(rows) < 100:
        raise StartupError(f"{len(rows)} texts are too few to calibrate with; give at least 100")
    openvino, nncf = _libraries()
    feeds = [list(_gaps(checkpoint, row, seed)) for seed, row in enumerate(rows)]
    held_out = [feed for feeds_of_text in feeds[::_HELD_OUT] for feed in feeds_of_text]
    calibration = [feed for index, of_text in enumerate(feeds) if index % _HELD_OUT for feed in of_text]
    full = openvino.Core().read_model(graph)
    names = {name for given in full.inputs for name in given.get_names()}
    small = nncf.quantize(
        openvino.Core().read_model(graph),
        nncf.Dataset([_only(feed, names) for feed in calibration]),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(calibration),
        advanced_parameters=nncf.AdvancedQuantizationParameters(smooth_quant_alpha=0.6),
    )
    same, differences = _compare(openvino, full, small, [_only(feed, names) for feed in held_out])
    report = QuantizeReport(
        fingerprint=checkpoint.fingerprint,
        openvino=version("openvino"),
        nncf=version("nncf"),
        calibrated_on=len(calibration),
        compared_gaps=len(held_out),
        same_first_choice=round(same, 4),
        median_difference=float(np.median(differences)),
        worst_difference=float(np.max(differences)),
    )
    if same < LEAST_AGREEMENT:
        raise StartupError(
            f"int8 agrees with float32 in {same:.1%} of the gaps, less than {LEAST_AGREEMENT:.0%}: not kept"
        )
    _write(openvino, small, report, destination)
    return report


def _gaps(checkpoint: Checkpoint, row: Sequence[int], seed: int) -> Iterator[Feed]:
    """The text with one ordinary token masked, several times over."""
    generator = np.random.default_rng(seed)
    ordinary = [position for position, token_id in enumerate(row) if token_id not in checkpoint.special_token_ids]
    for position in generator.choice(ordinary, min(_GAPS_A_TEXT, len(ordinary)), replace=False):
        ids = np.array([row], np.int64)
        ids[0, position] = checkpoint.mask_token_id
        yield {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
            "mask_rows": np.array([0]),
            "mask_columns": np.array([position]),
        }


def _only(feed: Feed, names: set[str]) -> Feed:
    return {name: array for name, array in feed.items() if name in names}


def _compare(openvino: Any, full: Any, small: Any, feeds: Sequence[Feed]) -> tuple[float, NDArray[np.float64]]:
    """The part of the gaps with the same first choice, and by how much its probability differs in each."""
    exact, rounded = (
        openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}) for model in (full, small)
    )
    same, differences = 0, []
    for feed in feeds:
        wanted, found = (_probabilities(compiled(feed)["logits"][0]) for compiled in (exact, rounded))
        first = int(wanted.argmax())
        same += int(found.argmax()) == first
        differences.append(abs(float(wanted[first] - found[first])))
    return same / len(feeds), np.array(differences)


def _probabilities(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    exponentials = np.exp(logits - logits.max())
    probabilities: NDArray[np.float32] = exponentials / exponentials.sum()
    return probabilities


def _write(openvino: Any, model: Any, report: QuantizeReport, destination: Path) -> None:
    target = (destination / INT8_GRAPH).parent
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".int8-", dir=destination) as name:
        temporary = Path(name)
        openvino.save_model(model, temporary / "model.xml", compress_to_fp16=False)
        (temporary / "report.json").write_text(json.dumps(asdict(report), indent=1) + "\n", encoding="utf-8")
        for file in ("model.bin", "report.json", "model.xml"):  # the graph last: where it is, all is
            os.replace(temporary / file, target / file)


def _libraries() -> tuple[Any, Any]:
    try:
        import nncf
        import openvino
    except ImportError as error:
        raise StartupError(f"int8 needs {error.name}: pip install 'fillmask[int8]'") from None
    return openvino, nncf
