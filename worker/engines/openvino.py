"""OpenVINO on x86 and ARM CPUs: the float32 graph, or the static int8 one that `fillmask export --int8` made from it.

What it is fed and what comes out: worker/engines/graph.py.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from common.checkpoint import fetch
from common.errors import StartupError
from worker.engines.graph import Feed, GraphEngine, Integers, first_line

INT8_GRAPH = "openvino-int8/model.xml"
"""Beside the other files of a model; its weights are in model.bin, and report.json says how well it agrees."""

_INT8_FILES = (INT8_GRAPH, "openvino-int8/model.bin", "openvino-int8/report.json")


class OpenVinoEngine(GraphEngine):
    name = "openvino"
    integers: ClassVar[dict[str, Integers]] = {"i64": np.int64, "i32": np.int32}
    _request: Any = None

    def close(self) -> None:
        self._request = None

    def _brought_graph(self) -> Path | None:
        int8 = fetch(self._checkpoint.name, self._checkpoint.revision, _INT8_FILES) / INT8_GRAPH
        if int8.is_file():
            self.name = "openvino int8"
            return int8
        return super()._brought_graph()

    def _open(self, graph: Path) -> Mapping[str, str]:
        try:
            import openvino
        except ImportError:
            raise StartupError("the openvino engine needs: pip install 'fillmask[openvino]'") from None
        options = {
            "PERFORMANCE_HINT": "LATENCY",  # one batch at a time gets all threads
            "INFERENCE_NUM_THREADS": self._threads,
            "INFERENCE_PRECISION_HINT": "f32",  # where the CPU has bfloat16 it would be used unasked
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
