"""How large batches should be on this machine: a few shapes are timed at the start, in about a second. The user's word is final.

Where workers are alike, one that replaces another takes over what was measured: requests wait for it meanwhile.

A CPU is busy with some hundred tokens, a GPU with some thousand; beyond that a larger batch only makes its requests wait.
"""

import json
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from worker.batching import BatchPolicy
from worker.engines.base import BatchLimits, Engine, blank_batch
from worker.padding import ModelLimits

log = logging.getLogger("fillmask.worker")

SENTENCE_TOKENS = 16
"""The length that is timed, and at which engines are compared throughout."""

_SHORTEST_TOKENS = 8
"""With shorter texts a full batch may be less than what was found to be enough."""

_FEWEST_REQUESTS = 16
"""No measurement takes the limit below: a busy moment at the start must not slow a worker down for good."""

_NEARLY = 0.97
"""So much of the best pace is as good as the best."""

_AROUND_S = 0.0005
"""What a batch costs outside the engine, whatever is in it: Redis is asked and told, threads hand on."""

_MEASURE_S = 1.0
"""All of the measuring, but for the last shape that was begun within it."""

_LOOKS = 3
_LOOKS_S = 0.15
"""A shape counts with the best of three runs, since whatever else the machine does only adds time; slow shapes run less often."""

_MOST_OVERHEAD_TOKENS = 4096.0


class Trial(NamedTuple):
    """How long a batch of so many sentences takes."""

    texts: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.texts / (self.seconds + _AROUND_S)


def fitted(engine: Engine, asked: BatchPolicy, limits: ModelLimits, measured_dir: Path | None = None) -> BatchPolicy:
    """`asked`, with what is 0 in it found by measuring, or by what a worker like this one left in `measured_dir`.

    The engine is loaded and warm.
    """
    length = min(SENTENCE_TOKENS, limits.max_tokens)
    most_tokens = asked.max_padded_tokens or engine.largest.max_padded_tokens
    most = BatchLimits(asked.max_batch_requests or engine.largest.max_requests, most_tokens)
    memory = measured_dir / f"{engine.name}.json" if measured_dir else None
    trials = _remembered(memory) if memory else []
    if not trials:
        trials = _measure(engine, length, min(most.max_requests, most.max_padded_tokens // length))
        if memory:
            _remember(trials, memory)
    policy = derive(trials, asked, most, limits.max_tokens)
    shown = ", ".join(f"{trial.texts} at once {trial.per_second:.0f}/s" for trial in trials)
    log.info("texts of %d tokens: %s", length, shown)
    log.info(
        "batches of up to %d requests and %d padded tokens; each costs as much as %.0f tokens more",
        policy.max_batch_requests, policy.max_padded_tokens, policy.overhead_tokens,
    )  # fmt: skip
    return policy


def derive(trials: Sequence[Trial], asked: BatchPolicy, most: BatchLimits, max_tokens: int) -> BatchPolicy:
    """`asked`, with what is 0 in it replaced: as many tokens as nearly reach the best pace, and the requests to fill them.

    A budget is never below one text of `max_tokens`. Where the pace still grows at the end, there is no end in sight: `most`.
    """
    length = min(SENTENCE_TOKENS, max_tokens)
    best = max(trial.per_second for trial in trials)
    enough = next(trial.texts for trial in trials if trial.per_second >= _NEARLY * best)
    tokens = max(enough, _FEWEST_REQUESTS) * length
    if enough > min(most.max_requests, most.max_padded_tokens // length) // 2:
        tokens = most.max_padded_tokens
    tokens = max(tokens, max_tokens)
    return replace(
        asked,
        max_padded_tokens=asked.max_padded_tokens or tokens,
        max_batch_requests=asked.max_batch_requests or min(most.max_requests, tokens // _SHORTEST_TOKENS),
        overhead_tokens=_overhead_tokens(trials, length),
    )


def _overhead_tokens(trials: Sequence[Trial], length: int) -> float:
    """What a batch costs before its first token, in tokens: where the line from the smallest to the largest meets zero, and
    what is done around the engine."""
    one, last = trials[0], trials[-1]
    token_s = (last.seconds - one.seconds) / ((last.texts - one.texts) * length) if last.texts > one.texts else 0.0
    if token_s <= 0:
        return _MOST_OVERHEAD_TOKENS
    started_s = max(one.seconds - token_s * one.texts * length, 0.0)
    return min((started_s + _AROUND_S) / token_s, _MOST_OVERHEAD_TOKENS)


def _remembered(memory: Path) -> list[Trial]:
    try:
        return [Trial(*trial) for trial in json.loads(memory.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


def _remember(trials: Sequence[Trial], memory: Path) -> None:
    with suppress(OSError):  # then the next one measures, too
        unfinished = memory.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps(trials), encoding="utf-8")
        unfinished.replace(memory)


def _measure(engine: Engine, length: int, most: int) -> list[Trial]:
    """Of 1, 2, 4, ... sentences at once, until more is no better twice in a row, or the time is up."""
    trials: list[Trial] = []
    ends_at_s = time.monotonic() + _MEASURE_S
    count = 1
    while count <= most and time.monotonic() < ends_at_s and not _level(trials):
        trials.append(Trial(count, _fastest_s(engine, count, length)))
        count *= 2
    return trials


def _level(trials: Sequence[Trial]) -> bool:
    if len(trials) < 3:
        return False
    before = max(trial.per_second for trial in trials[:-2])
    return max(trial.per_second for trial in trials[-2:]) * _NEARLY < before


def _fastest_s(engine: Engine, count: int, length: int) -> float:
    batch = blank_batch(0, count, length)
    began_s = time.perf_counter()
    fastest_s = float("inf")
    for _ in range(_LOOKS):
        started_s = time.perf_counter()
        engine.predict(batch)
        ended_s = time.perf_counter()
        fastest_s = min(fastest_s, ended_s - started_s)
        if ended_s - began_s > _LOOKS_S:
            break
    return fastest_s
