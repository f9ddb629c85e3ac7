"""int8 graphs in a model folder: where each kind lies, and what the report beside it says. worker/quantize.py makes them."""

import json
import logging
from pathlib import Path

from common.checkpoint import Checkpoint, fetch
from common.errors import StartupError

log = logging.getLogger("fillmask.worker")

OPENVINO_INT8 = "openvino-int8/model.xml"
"""Its weights are in model.bin."""

ONNX_INT8 = "onnx-int8/model.onnx"

REPORT = "report.json"
"""Beside each: how it was made, and in how many gaps its first choice is that of float32."""

LEAST_AGREEMENT = 0.98
"""Part of the held-out gaps whose first choice must be that of float32, unless whoever exports asks for less."""


def find_int8(checkpoint: Checkpoint, graph: str) -> Path | None:
    """The graph at that place of the model's folder, if there is one."""
    folder = str(Path(graph).parent)
    path = fetch(checkpoint.name, checkpoint.revision, (f"{folder}/*",)) / graph
    return path if path.is_file() else None


def refuse_lacking(checkpoint: Checkpoint, graph: str, flag: str) -> Path:
    """Where it lies. Raises StartupError if it is not there."""
    path = find_int8(checkpoint, graph)
    if path is None:
        raise StartupError(f"{checkpoint.name} holds no {graph}; fillmask export {flag} makes one")
    return path


def require_int8(checkpoint: Checkpoint, graph: str, flag: str) -> Path:
    """Raises StartupError if it is not there. Says how far it is to be trusted, aloud if that is less than it should be."""
    path = refuse_lacking(checkpoint, graph, flag)
    agreement = _agreement(path.with_name(REPORT))
    if agreement is None:
        log.warning("%s has no report: nobody knows how well it agrees with float32", path)
    elif agreement < LEAST_AGREEMENT:
        log.warning("%s agrees with float32 in only %.1f %% of the gaps it was compared on", path, 100 * agreement)
    else:
        log.info("%s agrees with float32 in %.1f %% of the gaps it was compared on", path, 100 * agreement)
    return path


def _agreement(report: Path) -> float | None:
    try:
        return float(json.loads(report.read_text(encoding="utf-8"))["same_first_choice"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
