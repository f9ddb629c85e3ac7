"""What happened second by second: differences between counts that only grow. It counts nothing itself; locust does."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

Milliseconds = Mapping[int, int]
"""Response time, rounded -> how many had it; as locust keeps it."""


class Counts(NamedTuple):
    """At `at_s`, since the start. `answered` came with the right words, or unchecked ones; `times` are theirs."""

    at_s: float
    rate: float
    answered: int
    refused: int
    failed: int
    times: Milliseconds


class Span(NamedTuple):
    """Between two counts; rates a second. Percentiles are None if nothing was answered."""

    at_s: float
    offered: float
    answered: float
    refused: float
    failed: float
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None


def between(earlier: Counts, later: Counts) -> Span:
    seconds = later.at_s - earlier.at_s
    times = {ms: count - earlier.times.get(ms, 0) for ms, count in later.times.items()}
    return Span(
        later.at_s,
        later.rate,
        (later.answered - earlier.answered) / seconds,
        (later.refused - earlier.refused) / seconds,
        (later.failed - earlier.failed) / seconds,
        percentile(times, 50),
        percentile(times, 95),
        percentile(times, 99),
    )


def spans(counts: Sequence[Counts]) -> list[Span]:
    return [between(earlier, later) for earlier, later in pairwise(counts) if later.at_s > earlier.at_s]


def percentile(times: Milliseconds, percent: float) -> int | None:
    left = sum(times.values()) * percent / 100
    for ms in sorted(times):
        left -= times[ms]
        if left <= 0 and times[ms]:
            return ms
    return None
