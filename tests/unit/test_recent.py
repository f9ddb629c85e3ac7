"""The last minute that the page shows: whole seconds, true percentiles, and nothing of what is older."""

from itertools import pairwise
from typing import Any

import pytest

from api.recent import WINDOW_S, Recent


class Clock:
    """A clock that stands until it is set."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recent(clock: Clock) -> Recent:
    return Recent(clock)


def told(recent: Recent) -> dict[str, Any]:
    return recent.tell()


def test_a_second_is_told_when_it_is_over(recent: Recent, clock: Clock) -> None:
    recent.add(0.010, failed=False)
    assert told(recent)["requests_by_second"] == []
    clock.now_s += 1
    recent.add(0.010, failed=True)
    assert told(recent)["requests_by_second"] == [1]
    clock.now_s += 2
    assert told(recent)["requests_by_second"] == [1, 1, 0]
    assert (told(recent)["window_s"], told(recent)["failed"]) == (3, 1)
    assert told(recent)["requests_s"] == pytest.approx(2 / 3)


def test_percentiles_are_true_to_a_tenth(recent: Recent, clock: Clock) -> None:
    for milliseconds in range(1, 101):
        recent.add(milliseconds / 1000, failed=False)
    clock.now_s += 1
    assert told(recent)["p50_ms"] == pytest.approx(50, rel=0.1)
    assert told(recent)["p99_ms"] == pytest.approx(99, rel=0.1)
    assert told(recent)["p50_ms_by_second"] == [told(recent)["p50_ms"]]


@pytest.mark.parametrize("duration_s", [0.0, 1e-9, 0.0001, 3600.0])
def test_no_duration_is_out_of_range(recent: Recent, clock: Clock, duration_s: float) -> None:
    recent.add(duration_s, failed=False)
    clock.now_s += 1
    assert told(recent)["p50_ms"] == pytest.approx(max(duration_s, 0.0001) * 1000, rel=0.11)


def test_a_minute_ago_is_forgotten(recent: Recent, clock: Clock) -> None:
    counts = []
    for _ in range(WINDOW_S + 5):
        recent.add(0.001, failed=False)
        clock.now_s += 1
        counts.append(sum(told(recent)["requests_by_second"]))
    assert counts[-1] == WINDOW_S
    assert all(one <= other for one, other in pairwise(counts))
    clock.now_s += 2 * WINDOW_S
    assert told(recent)["requests_s"] == 0
    assert told(recent)["p50_ms"] is None
