"""What load a scenario offers when, and where the knee is. Functions of their arguments: no clock, no locust.

steady    one rate
mixed     one rate; one to sixteen texts a request, of 7 to 130 characters, few or many candidates
burst     half the rate, three times doubled and doubled again for as long
overload  the rate, two and a half times as much, the rate again: it refuses in time, and recovers
soak      one rate, for long
ramp      a quarter more at each step, until the service does not keep up, twice in a row; the last kept up with is the knee
"""

from collections.abc import Sequence
from typing import NamedTuple

OVERLOAD = 2.5
RAMP_FACTOR = 1.25
RAMP_STEP_S = 5.0
SETTLES_S = 1.5
"""What a step's figures leave out at its start."""

KEPT_UP = 0.97
"""Least part of the offered requests that is answered, for a rate to count as kept up with."""

SLOW_FACTOR = 10.0
LEAST_SLOW_MS = 100.0
"""A p99 above so many times the unloaded p50, and above so many milliseconds, means that a queue grows."""


class Stage(NamedTuple):
    seconds: float
    rate: float
    """Requests a second that are offered."""


class Step(NamedTuple):
    """What was measured at one rate of a ramp."""

    rate: float
    answered_per_s: float
    p50_ms: float
    p99_ms: float


SCENARIOS = ("steady", "mixed", "burst", "overload", "soak", "ramp")


def stages(scenario: str, rate: float, seconds: float) -> list[Stage]:
    """Of every scenario but the ramp, which decides as it goes."""
    if scenario == "burst":
        return [Stage(seconds / 6, rate / 2), Stage(seconds / 6, rate * 2)] * 3
    if scenario == "overload":
        return [Stage(seconds / 4, rate), Stage(seconds / 2, rate * OVERLOAD), Stage(seconds / 4, rate)]
    return [Stage(seconds, rate)]


def rate_at(plan: Sequence[Stage], elapsed_s: float) -> float | None:
    """None when the plan is over."""
    for stage in plan:
        if elapsed_s < stage.seconds:
            return stage.rate
        elapsed_s -= stage.seconds
    return None


def kept_up(step: Step, unloaded_p50_ms: float) -> bool:
    slow_ms = max(LEAST_SLOW_MS, SLOW_FACTOR * unloaded_p50_ms)
    return step.answered_per_s >= KEPT_UP * step.rate and step.p99_ms <= slow_ms


def knee(steps: Sequence[Step]) -> Step | None:
    """The highest rate that was kept up with; None if the first was too much already."""
    good = [step for step in steps if kept_up(step, steps[0].p50_ms)]
    return max(good, key=lambda step: step.rate, default=None)


def next_rate(steps: Sequence[Step], first: float) -> float | None:
    """None when two steps in a row were too much: one alone may be somebody else's noise."""
    if not steps:
        return first
    last_two = [kept_up(step, steps[0].p50_ms) for step in steps[-2:]]
    return None if last_two == [False, False] else steps[-1].rate * RAMP_FACTOR
