"""Our own float32 graph -> int8, kept only if it agrees with float32 in gaps that it has not seen, and with itself beside other
texts; its report lies beside it.

    static      OpenVINO: scales of weights and activations are fixed beforehand (NNCF, SmoothQuant). The fastest
    per token   OpenVINO: weights are stored in int8, each token's activations get scales of their own while it runs. Next to it
    dynamic     ONNX Runtime: one scale for the activations of a whole batch, so that neighbours change one's scores

`fillmask export --int8` tries the first two in turn, `--dynamic-int8` makes the third. No engine is chosen here.
"""

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from common.checkpoint import Checkpoint
from common.errors import StartupError
from worker.agreement import Agreement, Feed, Gaps, Logits, Run, beside_others, compare
from worker.engines.int8 import LEAST_AGREEMENT, ONNX_INT8, OPENVINO_INT8, REPORT
from worker.export_graph import open_graph
from worker.partial import partial_folder

_ALPHA = 0.6
"""SmoothQuant's strength: of .3, .6 and .95, the one that left bert-base's shape and the demo model nearest to float32."""


class Int8Disagrees(StartupError):
    """What was made is not kept."""


@dataclass(frozen=True)
class QuantizeReport:
    """What is written to report.json beside the graph; the fields of Agreement are among its own."""

    fingerprint: str
    method: str
    made_with: dict[str, str]
    calibrated_on: int
    least_agreement: float
    compared_gaps: int
    same_first_choice: float
    median_difference: float
    worst_difference: float
    same_beside_others: float


class _Method(NamedTuple):
    """`make` writes the int8 graph of a float32 graph to a path, and returns how to run it."""

    name: str
    make: Callable[[Path, Sequence[Feed], Path], Run]
    libraries: tuple[str, ...]


def quantize_openvino(
    checkpoint: Checkpoint, graph: Path, found: Gaps, folder: Path, least: float = LEAST_AGREEMENT
) -> QuantizeReport:
    """Writes openvino-int8/ into the model's `folder`, whole or not at all. `graph` is our own export in float32.

    Raises StartupError: NNCF is missing; Int8Disagrees: no method agrees in at least `least` of the held-out gaps.
    """
    nncf_and_openvino()
    methods = (
        _Method("static", _static, ("openvino", "nncf")),
        _Method("per token", _per_token, ("openvino", "nncf")),
    )
    return _best(methods, checkpoint, graph, found, (folder / OPENVINO_INT8, least))


def quantize_onnx(
    checkpoint: Checkpoint, graph: Path, found: Gaps, folder: Path, least: float = LEAST_AGREEMENT
) -> QuantizeReport:
    """Writes onnx-int8/ into the model's `folder`, likewise."""
    methods = (_Method("dynamic", _dynamic, ("onnxruntime",)),)
    return _best(methods, checkpoint, graph, found, (folder / ONNX_INT8, least))


def _best(
    methods: Sequence[_Method], checkpoint: Checkpoint, graph: Path, found: Gaps, wanted: tuple[Path, float]
) -> QuantizeReport:
    """Keeps the first that agrees enough."""
    place, least = wanted
    exact, told = beside_others(_logits_of(graph), found.held_out), []
    for method in methods:
        try:
            with partial_folder(place.parent) as unfinished:
                rounded = method.make(graph, found.calibration, unfinished / place.name)
                agreement = compare(exact, rounded, found.held_out)
                if agreement.least < least:
                    raise Int8Disagrees(_shown(method.name, agreement))
                report = _report(checkpoint, method, found, agreement, least)
                (unfinished / REPORT).write_text(json.dumps(asdict(report), indent=1) + "\n", encoding="utf-8")
                return report
        except Int8Disagrees as disagrees:
            told.append(disagrees.message)
    raise Int8Disagrees(
        f"of {len(found.held_out)} gaps int8 has the same first choice as float32 in {' and in '.join(told)}; less than "
        f"{least:.1%} is not kept"
    )


def _shown(method: str, agreement: Agreement) -> str:
    beside = agreement.same_beside_others
    return f"{agreement.same_first_choice:.1%} ({method}; as itself beside other texts in {beside:.1%})"


def _report(checkpoint: Checkpoint, method: _Method, found: Gaps, agreement: Agreement, least: float) -> QuantizeReport:
    return QuantizeReport(
        fingerprint=checkpoint.fingerprint,
        method=method.name,
        made_with={library: version(library) for library in method.libraries},
        calibrated_on=len(found.calibration) if method.name == "static" else 0,
        least_agreement=least,
        **agreement._asdict(),
    )


def _static(graph: Path, calibration: Sequence[Feed], made: Path) -> Run:
    nncf, openvino = nncf_and_openvino()
    model = openvino.Core().read_model(graph)
    names = _input_names(model)
    smooth = nncf.AdvancedSmoothQuantParameters(matmul=_ALPHA)
    with redirect_stdout(sys.stderr):  # NNCF's bars of progress
        small = nncf.quantize(
            model,
            nncf.Dataset([_only(feed, names) for feed in calibration]),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(calibration),
            advanced_parameters=nncf.AdvancedQuantizationParameters(smooth_quant_alphas=smooth),
        )
    return _saved(openvino, small, made)


def _per_token(graph: Path, _calibration: Sequence[Feed], made: Path) -> Run:
    """OpenVINO quantises activations by itself where weights are stored so: 32 neighbouring values of a token share a scale."""
    nncf, openvino = nncf_and_openvino()
    with redirect_stdout(sys.stderr):
        small = nncf.compress_weights(openvino.Core().read_model(graph), mode=nncf.CompressWeightsMode.INT8_SYM)
    return _saved(openvino, small, made)


def _dynamic(graph: Path, _calibration: Sequence[Feed], made: Path) -> Run:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.disable(logging.WARNING)  # advice to prepare the graph, which our own export needs not
    try:
        quantize_dynamic(graph, made, weight_type=QuantType.QInt8, per_channel=True)
    finally:
        logging.disable(logging.NOTSET)
    return _logits_of(made)


def _saved(openvino: Any, model: Any, made: Path) -> Run:
    openvino.save_model(model, made, compress_to_fp16=False)
    compiled = openvino.Core().compile_model(made, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    names = _input_names(compiled)

    def run(feed: Feed) -> Logits:
        logits: Logits = compiled(_only(feed, names))["logits"]
        return logits

    return run


def _logits_of(graph: Path) -> Run:
    run = open_graph(graph)
    return lambda feed: run(feed)["logits"]


def _input_names(model: Any) -> set[str]:
    return {name for given in model.inputs for name in given.get_names()}


def _only(feed: Feed, names: set[str]) -> Feed:
    return {name: array for name, array in feed.items() if name in names}


def nncf_and_openvino() -> tuple[Any, Any]:
    """Raises StartupError if they are not installed."""
    os.environ.setdefault("CI", "true")  # else NNCF reports its use to its maker; it asks no other variable
    try:
        import nncf
        import openvino
    except ImportError as error:
        raise StartupError(f"int8 needs {error.name}: pip install 'fillmask[int8]'") from None
    nncf.set_log_level(logging.ERROR)
    return nncf, openvino
