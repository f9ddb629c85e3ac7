"""The engine that the settings name, or with `auto` the best for this model on this machine, and why. Loads none yet.

`auto` is CUDA, if a device can be used and the model brings weights; else OpenVINO int8, if the model brings that; else the
float32 engine that is fastest here, of those that are installed.
"""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from common.checkpoint import Checkpoint
from common.errors import StartupError
from worker.cores import usable_cores
from worker.engines.base import BatchLimits, Engine
from worker.engines.fastest import Pace, measured, remembered
from worker.engines.graph_engines import graph_engine
from worker.engines.int8 import OPENVINO_INT8, find_int8
from worker.masked_head import fetch_weights, is_on_hub
from worker.settings import WorkerSettings

log = logging.getLogger("fillmask.worker")

PaceOf = Callable[[Checkpoint, Sequence[str], int, Path], Pace | None]


class Choice(NamedTuple):
    engine: str
    why: str


def make_engine(settings: WorkerSettings, checkpoint: Checkpoint) -> Engine:
    """Not loaded yet; its library is imported only now."""
    engine = settings.engine
    if engine == "echo":
        from worker.engines.echo import EchoEngine

        return EchoEngine(checkpoint.vocabulary_size)
    if engine == "drill":
        from worker.engines.drill import DrillEngine

        return DrillEngine(checkpoint.vocabulary_size, settings.drill_batch_ms, settings.drill_token_us)
    chosen = choose(settings, checkpoint, cuda_is_there()) if engine == "auto" else Choice(engine, "asked for")
    log.info("engine %s: %s", *chosen)
    if chosen.engine in ("cuda", "torch"):
        return _torch_engine(chosen.engine, settings, checkpoint)
    return graph_engine(chosen.engine, checkpoint, threads_of(settings), settings.cache_dir.expanduser())


def check_engine(settings: WorkerSettings, checkpoint: Checkpoint, has_cuda: bool | None = None) -> Choice:
    """The engine that make_engine would make, if a moment's look finds all that it needs to load. `has_cuda` None: it looks.

    Raises StartupError, as the engine itself would. Neither exports nor measures, and fetches nothing large from the hub.
    """
    engine, why = settings.engine, "asked for"
    if engine in ("echo", "drill"):
        return Choice(engine, why)
    if has_cuda is None:
        has_cuda = cuda_is_there()
    chosen = choose(settings, checkpoint, has_cuda, pace_of=remembered) if engine == "auto" else Choice(engine, why)
    if chosen.engine in ("cuda", "torch"):
        _check_torch(chosen.engine, checkpoint, has_cuda)
    else:
        graph_engine(chosen.engine, checkpoint, threads_of(settings), settings.cache_dir.expanduser()).check()
    return chosen


def choose(settings: WorkerSettings, checkpoint: Checkpoint, has_cuda: bool, pace_of: PaceOf = measured) -> Choice:
    """What `auto` means. `pace_of` may measure, which takes seconds, or only remember."""
    if has_cuda and _brings_weights(checkpoint):
        return Choice("cuda", "torch sees a CUDA device")
    if find_spec("openvino") is None:
        return Choice("onnx", "openvino is not installed")
    if find_int8(checkpoint, OPENVINO_INT8):
        return Choice("openvino-int8", f"the model brings {OPENVINO_INT8}")
    threads, cache_dir = threads_of(settings), settings.cache_dir.expanduser()
    pace = pace_of(checkpoint, ("onnx", "openvino"), threads, cache_dir)
    if pace is None:
        return Choice("onnx", "whether openvino is faster is not measured yet")
    shown = ", ".join(f"{engine} {per_second:.0f}" for engine, per_second in pace.items())
    return Choice(max(pace, key=lambda engine: pace[engine]), f"the fastest float32 here; sentences a second: {shown}")


def cuda_is_there() -> bool:
    """Whether torch can use a device. It is imported, which takes seconds, only where a device file says that it may."""
    files = any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists() or Path("/dev/nvgpu").exists()
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if not files or hidden or not find_spec("torch") or not find_spec("transformers"):
        return False
    from worker.engines.cuda import is_available

    return is_available()


def threads_of(settings: WorkerSettings) -> int:
    return settings.threads or usable_cores()


def _torch_engine(engine: str, settings: WorkerSettings, checkpoint: Checkpoint) -> Engine:
    from worker.engines.cuda import LARGEST, TorchEngine, TorchOptions

    options = TorchOptions("cpu", threads=threads_of(settings), compiled=settings.torch_compile)
    if engine == "cuda":
        requests = settings.max_batch_requests or LARGEST.max_requests
        largest = BatchLimits(requests, settings.max_padded_tokens or LARGEST.max_padded_tokens)
        options = replace(
            options, device="cuda", dtype=settings.cuda_dtype, largest=largest, graphs=settings.cuda_graphs
        )
    return TorchEngine(checkpoint, options)


def _check_torch(engine: str, checkpoint: Checkpoint, has_cuda: bool) -> None:
    for library in ("torch", "transformers"):
        if find_spec(library) is None:
            raise StartupError(f"torch models need {library}: pip install 'fillmask[export]'")
    if engine == "cuda" and not has_cuda:
        from worker.engines.cuda import NO_DEVICE

        raise StartupError(NO_DEVICE)
    if not is_on_hub(checkpoint):
        fetch_weights(checkpoint)


def _brings_weights(checkpoint: Checkpoint) -> bool:
    """A folder that `fillmask export` made has a graph only. What the hub has is not fetched to find out."""
    if is_on_hub(checkpoint):
        return True
    try:
        return bool(fetch_weights(checkpoint))
    except StartupError:
        return False
