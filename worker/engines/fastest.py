"""Which float32 engine runs a model fastest on this machine? Measured in a child process, once; the cache remembers it.

A worker then loads the winner and never the other's library: its memory holds one engine. Accuracy is not asked: all are exact.
"""

import hashlib
import json
import logging
import os
import platform
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from subprocess import TimeoutExpired

from filelock import FileLock

from common.checkpoint import Checkpoint, open_checkpoint
from worker.child import end_with_parent, run_module
from worker.engines.base import blank_batch
from worker.engines.graph import GraphEngine
from worker.engines.graph_engines import graph_engine

log = logging.getLogger("fillmask.worker")

Pace = dict[str, float]
"""Engine -> sentences of 16 tokens a second, in batches of 16."""

_COUNT, _LONGEST = 16, 16
_MEASURE_S = 0.5
_CHILD_S = 60.0
_LIBRARIES = {"onnx": "onnxruntime", "openvino": "openvino"}


def remembered(checkpoint: Checkpoint, engines: Sequence[str], threads: int, cache_dir: Path) -> Pace | None:
    """What was measured of this model, this processor, these versions and so many threads, if it was."""
    try:
        pace = json.loads(_memory(checkpoint, engines, threads, cache_dir).read_text(encoding="utf-8"))
        return {engine: float(pace[engine]) for engine in engines}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def measured(checkpoint: Checkpoint, engines: Sequence[str], threads: int, cache_dir: Path) -> Pace | None:
    """What is remembered, or else what two seconds of measuring tell.

    None if the model is yet to be exported, or an engine cannot run it, which the one that is chosen will say.
    """
    asked = (checkpoint, engines, threads, cache_dir)
    if pace := remembered(*asked):
        return pace
    if not graph_engine(engines[0], checkpoint, threads, cache_dir).has_graph():
        return None
    memory = _memory(*asked)
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(memory.with_suffix(".lock")):  # workers that start together would disturb one another
            return remembered(*asked) or _measure_in_child(*asked)
    except OSError as error:
        log.debug("%s cannot be written, so the next start measures again: %s", memory, error.strerror)
        return _measure_in_child(*asked)


def _measure_in_child(checkpoint: Checkpoint, engines: Sequence[str], threads: int, cache_dir: Path) -> Pace | None:
    started_s = time.monotonic()
    arguments = (checkpoint.name, checkpoint.revision, str(threads), str(cache_dir), *engines)
    try:
        told = json.loads(run_module("worker.engines.fastest", *arguments, timeout_s=_CHILD_S).stdout)
    except (TimeoutExpired, ValueError):
        return None
    log.info("measured %s in %.1f s", " and ".join(engines), time.monotonic() - started_s)
    memory = _memory(checkpoint, engines, threads, cache_dir)
    with suppress(OSError):
        unfinished = memory.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps(told), encoding="utf-8")
        unfinished.replace(memory)
    return {engine: float(told[engine]) for engine in engines}


def _memory(checkpoint: Checkpoint, engines: Sequence[str], threads: int, cache_dir: Path) -> Path:
    versions = [f"{engine} {version(_LIBRARIES[engine])}" for engine in engines]
    facts = [checkpoint.fingerprint, _processor(), str(threads), *versions]
    return cache_dir / "paces" / f"{hashlib.sha256('/'.join(facts).encode()).hexdigest()[:16]}.json"


def _processor() -> str:
    """Its model where Linux tells it; a cache may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine()


def _in_turn(engines: Sequence[GraphEngine], token_id: int) -> Pace:
    """The best of each, taken in turn: a busy moment then harms none alone."""
    batch = blank_batch(token_id, _COUNT, _LONGEST)
    seconds = {engine.name: float("inf") for engine in engines}
    for engine in engines:
        engine.predict(batch)
    ends_at_s = time.monotonic() + _MEASURE_S
    while True:
        for engine in engines:
            started_s = time.perf_counter()
            engine.predict(batch)
            seconds[engine.name] = min(seconds[engine.name], time.perf_counter() - started_s)
        if time.monotonic() > ends_at_s:
            return {name: round(_COUNT / took_s, 1) for name, took_s in seconds.items()}


def main(arguments: Sequence[str]) -> int:
    """The child: MODEL REVISION THREADS CACHE_DIR ENGINE..., and their pace as JSON on standard output."""
    end_with_parent()
    name, revision, threads, cache_dir, *engines = arguments
    checkpoint = open_checkpoint(name, revision)
    loaded = [graph_engine(engine, checkpoint, int(threads), Path(cache_dir)) for engine in engines]
    for engine in loaded:
        engine.load()
    print(json.dumps(_in_turn(loaded, checkpoint.mask_token_id)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
