"""`fillmask bench`: one engine, loaded once and timed at the shapes that come in on standard input. Nothing of Redis or HTTP.

Each line is a JSON object, and so is each answer; the first line out tells what was loaded. loadtest/bench.py runs one such
process for each engine and asks them in turn, so that all are measured at the same hour of the same machine.

    {"do": "time", "count": 32, "length": 16, "seconds": 0.5}   -> {"texts": ..., "seconds": ...}
    {"do": "answer", "count": 64, "length": 16, "batch": 8}     -> {"token_ids": [...], "probabilities": [...]}
    {"do": "memory"}                                            -> {"rss_bytes": ..., "peak_bytes": ...}
"""

import json
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.checkpoint import Checkpoint, open_checkpoint
from common.command_line import parse, refuse
from common.errors import StartupError
from worker.settings import WorkerSettings

if TYPE_CHECKING:
    from worker.engines.base import Engine, PaddedBatch, TopTokens

_OPTIONS = frozenset(
    (
        "engine", "model", "revision", "threads", "cache_dir", "cuda_dtype", "cuda_graphs", "torch_compile",
        "max_batch_requests", "max_padded_tokens",
    )
)  # fmt: skip
_TOP_K = 5


class Bench:
    def __init__(self, engine: "Engine", checkpoint: Checkpoint) -> None:
        self._engine = engine
        self._checkpoint = checkpoint

    def time(self, count: int, length: int, seconds: float) -> dict[str, float]:
        """As a worker runs it: the next batch is started before the last one is answered, if the engine takes two."""
        batches = [self._batch(count, length, seed) for seed in range(4)]
        self._engine.warm_up([(count, length)])
        waiting: deque[Callable[[], TopTokens]] = deque()
        answered, started_s = 0, time.perf_counter()
        while answered == 0 or time.perf_counter() - started_s < seconds:
            waiting.append(self._engine.start(batches[answered % len(batches)]))
            if len(waiting) == self._engine.in_flight:
                waiting.popleft()()
                answered += 1
        while waiting:
            waiting.popleft()()
            answered += 1
        return {"texts": answered * count, "seconds": time.perf_counter() - started_s}

    def answer(self, count: int, length: int, batch: int) -> dict[str, Any]:
        """What the engine says of `count` random texts of up to `length` tokens, so many at a time: always the same texts."""
        found = [self._engine.predict(part) for part in self._mixed(count, length, batch)]
        return {
            "token_ids": [ids for top in found for ids in top.token_ids.tolist()],
            "probabilities": [scores for top in found for scores in top.probabilities.tolist()],
        }

    def memory(self) -> dict[str, int]:
        resident = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10  # told less exactly
        return {"rss_bytes": resident, "peak_bytes": max(peak, resident)}

    def _batch(self, count: int, length: int, seed: int) -> "PaddedBatch":
        return self._padded([length] * count, seed * count)

    def _mixed(self, count: int, length: int, batch: int) -> "Iterator[PaddedBatch]":
        for first in range(0, count, batch):
            numbers = range(first, min(first + batch, count))
            yield self._padded([3 + number * 7 % (length - 2) for number in numbers], first)

    def _padded(self, lengths: list[int], first: int) -> "PaddedBatch":
        """A row depends on its number alone, not on which others it is with; they count from `first`."""
        import numpy as np

        from worker.engines.base import PaddedBatch

        shape = (len(lengths), max(lengths))
        ids = np.full(shape, self._checkpoint.pad_token_id, np.int64)
        real = np.zeros(shape, np.int64)
        columns = np.zeros(len(lengths), np.int64)
        for row, length in enumerate(lengths):
            generator = np.random.default_rng(first + row)
            ids[row, :length] = generator.integers(5, self._checkpoint.vocabulary_size, length)
            columns[row] = generator.integers(length)
            ids[row, columns[row]] = self._checkpoint.mask_token_id
            real[row, :length] = 1
        nothing = np.empty(0, np.int64)
        return PaddedBatch(ids, real, np.arange(len(lengths)), columns, _TOP_K, nothing, nothing)


def _loaded(settings: WorkerSettings) -> tuple[Bench, dict[str, Any]]:
    from worker.engines.choice import make_engine

    started_s = time.perf_counter()
    checkpoint = open_checkpoint(settings.model, settings.revision)
    engine = make_engine(settings, checkpoint)
    engine.load()
    load_s = time.perf_counter() - started_s
    engine.warm_up([(1, min(16, checkpoint.max_tokens))])
    warm_s = time.perf_counter() - started_s - load_s
    return Bench(engine, checkpoint), {"engine": engine.name, "load_s": load_s, "warm_up_s": warm_s}


def main(arguments: list[str]) -> int:
    without = WorkerSettings.model_fields.keys() - _OPTIONS
    settings = parse(WorkerSettings, arguments, "fillmask bench", without)
    try:
        bench, told = _loaded(settings)
    except StartupError as error:
        return refuse("fillmask bench", error)
    print(json.dumps(told), flush=True)
    deeds: dict[str, Callable[..., dict[str, Any]]] = {
        "time": bench.time,
        "answer": bench.answer,
        "memory": bench.memory,
    }
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(deeds[asked.pop("do")](**asked)), flush=True)
    return 0
