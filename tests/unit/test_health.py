"""worker/health.py: what a heartbeat says."""

from typing import Any

import pytest

import worker.health
from worker.health import Health


class Clock:
    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(worker.health, "time", clock)
    return clock


def a_batch(health: Health, clock: Clock, took_s: float, **sizes: Any) -> None:
    health.batch_begins(clock.now_s)
    clock.now_s += took_s
    health.learn(**sizes, took_s=health.batch_ends())


def test_a_stop_while_it_loads_is_not_forgotten_when_it_is_loaded() -> None:
    health = Health("w", "onnx")
    assert health.state == "loading"
    health.draining = True
    health.loaded = True
    assert health.status().state == "draining"


def test_the_pace_of_its_batches(clock: Clock) -> None:
    health = Health("w", "onnx")
    for _ in range(3):
        a_batch(health, clock, 0.5, requests=8, tokens=80, padded_tokens=100)
    told = health.status()
    assert told.capacity_requests_s == pytest.approx(16)
    assert told.batch_requests == pytest.approx(8)
    assert told.padding_ratio == pytest.approx(1.25)


def test_busy_is_a_part_of_the_last_second_not_of_a_life(clock: Clock) -> None:
    health = Health("w", "onnx")
    a_batch(health, clock, 0.5, requests=8, tokens=80, padded_tokens=100)
    clock.now_s += 0.5
    told = health.status()
    assert (told.busy, told.tokens_s) == (0.5, 80)
    clock.now_s += 1.0
    told = health.status()
    assert (told.busy, told.tokens_s) == (0, 0), "it idled"
    health.batch_begins(clock.now_s)
    clock.now_s += 2.0
    assert health.status().busy == 1, "one long batch is under way"


def test_a_batch_that_failed_teaches_no_pace(clock: Clock) -> None:
    health = Health("w", "onnx")
    health.batch_begins(clock.now_s)
    clock.now_s += 0.1
    assert health.batch_ends() == pytest.approx(0.1)
    assert health.status().capacity_requests_s == 0
