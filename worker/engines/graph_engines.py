"""The engines whose model is a graph file, by name; each library is imported only when its engine is asked for."""

from pathlib import Path

from common.checkpoint import Checkpoint
from worker.engines.graph import GraphEngine


def graph_engine(name: str, checkpoint: Checkpoint, threads: int, cache_dir: Path) -> GraphEngine:
    """Not loaded yet."""
    if name.startswith("openvino"):
        from worker.engines.openvino import OpenVinoEngine, OpenVinoInt8Engine

        openvino = OpenVinoInt8Engine if name == "openvino-int8" else OpenVinoEngine
        return openvino(checkpoint, threads, cache_dir)
    from worker.engines.onnx import OnnxEngine, OnnxInt8Engine

    onnx = OnnxInt8Engine if name == "onnx-int8" else OnnxEngine
    return onnx(checkpoint, threads, cache_dir)
