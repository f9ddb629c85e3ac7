"""ONNX Runtime on the CPU: the float32 graph, or the dynamic int8 one that `fillmask export --dynamic-int8` made from it.

What it is fed and what comes out: worker/engines/graph.py.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from common.errors import StartupError
from worker.engines.graph import Feed, GraphEngine, Integers, first_line
from worker.engines.int8 import ONNX_INT8, refuse_lacking, require_int8

_SLOWER_FUSIONS = ["SkipLayerNormFusion"]
"""Costs 7-11 % on the CPU (ONNX Runtime 1.32, bert-base shape, batches of 32 x 16 and 8 x 128): Add and LayerNormalization
run on all threads and are faster apart."""


class OnnxEngine(GraphEngine):
    name = "onnx"
    integers: ClassVar[dict[str, Integers]] = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
    _session: Any = None

    def close(self) -> None:
        self._session = None

    def _library(self) -> Any:
        try:
            import onnxruntime
        except ImportError:
            raise StartupError("the onnx engine needs: pip install onnxruntime") from None
        return onnxruntime

    def _open(self, graph: Path) -> Mapping[str, str]:
        onnxruntime = self._library()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        # Idle threads would spin: for lone requests that took 2.4 times the CPU time and won nothing (bert-base, 2 cores).
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # A pattern of memory is kept for each shape seen, and no two batches have the same: 291 MB instead of 521 MB after two
        # dozen shapes up to 64 x 128 (demo model), at the same speed.
        options.enable_mem_pattern = False
        # The memory arena stays on: over 400 random shapes it grew by 1 % in the second half (232 to 234 MB), and without it
        # runs were 5 % slower for 9 % less memory.
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(
                graph, options, providers=["CPUExecutionProvider"], disabled_optimizers=_SLOWER_FUSIONS
            )
        except Exception as error:  # onnxruntime's own types share no base but Exception
            raise StartupError(f"{graph} is no graph that ONNX Runtime can load: {first_line(error)}") from None
        if "logits" not in {output.name for output in self._session.get_outputs()}:
            raise StartupError(f"{graph} has no output logits, so it was exported without a masked-LM head")
        return {wanted.name: wanted.type for wanted in self._session.get_inputs()}

    def _run(self, feed: Feed) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = self._session.run(["logits"], feed)[0]
        return logits


class OnnxInt8Engine(OnnxEngine):
    """Dynamic int8: activations of a whole batch share a scale, so a text's scores depend on what else is in the batch.

    Never chosen unasked. How often a first choice changes beside others, the graph's report.json says (same_beside_others).
    """

    name = "onnx-int8"

    def load(self) -> None:
        self._use(require_int8(self._checkpoint, ONNX_INT8, "--dynamic-int8"))

    def _check_graph(self) -> None:
        refuse_lacking(self._checkpoint, ONNX_INT8, "--dynamic-int8")
