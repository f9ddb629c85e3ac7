"""OpenVINO on x86 and ARM CPUs: the float32 graph, or the int8 one that `fillmask export --int8` made from it.

What it is fed and what comes out: worker/engines/graph.py.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from common.errors import StartupError
from worker.engines.graph import Feed, GraphEngine, Integers, first_line
from worker.engines.int8 import OPENVINO_INT8, refuse_lacking, require_int8

_CACHED_PRIMITIVES = 300
"""Code that is kept for shapes seen before, and hardly any two batches have the same. With OpenVINO's own 5000 a worker of int8
in bert-base's shape grew from 0.4 GB by 5 MB a shape to 1.9 GB; so it stays below 0.9 GB, and is 2-7 % slower for it."""


class OpenVinoEngine(GraphEngine):
    name = "openvino"
    integers: ClassVar[dict[str, Integers]] = {"i64": np.int64, "i32": np.int32}
    _request: Any = None

    def close(self) -> None:
        self._request = None

    def _library(self) -> Any:
        try:
            import openvino
        except ImportError:
            raise StartupError("the openvino engine needs: pip install 'fillmask[openvino]'") from None
        return openvino

    def _open(self, graph: Path) -> Mapping[str, str]:
        openvino = self._library()
        options = {
            "PERFORMANCE_HINT": "LATENCY",  # one batch at a time gets all threads
            "INFERENCE_NUM_THREADS": self._threads,
            "ENABLE_CPU_PINNING": False,  # each worker would pin its threads to the same first cores, and the others idle
            "INFERENCE_PRECISION_HINT": "f32",  # where the CPU has bfloat16 it would be used unasked
            "CPU_RUNTIME_CACHE_CAPACITY": _CACHED_PRIMITIVES,
        }
        try:
            compiled = openvino.Core().compile_model(graph, "CPU", options)
        except RuntimeError as error:
            raise StartupError(f"{graph} is no graph that OpenVINO can load: {first_line(error)}") from None
        if "logits" not in {name for output in compiled.outputs for name in output.get_names()}:
            raise StartupError(f"{graph} has no output logits, so it was exported without a masked-LM head")
        self._request = compiled.create_infer_request()
        return {given.get_any_name(): given.get_element_type().get_type_name() for given in compiled.inputs}

    def _run(self, feed: Feed) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = self._request.infer(feed, share_inputs=True)["logits"]
        return logits


class OpenVinoInt8Engine(OpenVinoEngine):
    """Runs that graph and no other: who asks for int8 shall not get float32 in silence."""

    name = "openvino-int8"

    def load(self) -> None:
        self._use(require_int8(self._checkpoint, OPENVINO_INT8, "--int8"))

    def _check_graph(self) -> None:
        refuse_lacking(self._checkpoint, OPENVINO_INT8, "--int8")
