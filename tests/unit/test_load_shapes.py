"""What a load test decides without a clock: the load at each moment, the knee, percentiles of a span."""

from loadtest.shapes import Stage, Step, knee, next_rate, rate_at, stages
from loadtest.timeline import Counts, between, percentile

UNLOADED = Step(100, 100, p50_ms=5, p99_ms=9)
BUSY = Step(125, 124, p50_ms=8, p99_ms=20)
TOO_SLOW = Step(156, 156, p50_ms=40, p99_ms=300)
TOO_FEW = Step(195, 160, p50_ms=20, p99_ms=60)


def test_overload_offers_two_and_a_half_times_as_much_and_lets_it_recover() -> None:
    plan = stages("overload", 100, 40)
    assert [rate_at(plan, at) for at in (0, 9.9, 10, 29.9, 30, 39.9, 40)] == [100, 100, 250, 250, 100, 100, None]


def test_bursts_come_three_times() -> None:
    assert stages("burst", 100, 12) == [Stage(2, 50), Stage(2, 200)] * 3


def test_the_knee_is_the_highest_rate_that_was_kept_up_with() -> None:
    assert knee([UNLOADED, BUSY, TOO_SLOW, TOO_FEW]) == BUSY


def test_a_ramp_goes_on_until_two_steps_in_a_row_were_too_much() -> None:
    assert next_rate([], 100) == 100
    assert next_rate([UNLOADED], 100) == 125
    assert next_rate([UNLOADED, BUSY, TOO_SLOW], 100) == 195, "one may be noise"
    assert next_rate([UNLOADED, BUSY, TOO_SLOW, TOO_FEW], 100) is None


def test_a_ramp_that_starts_too_high_finds_no_knee() -> None:
    first, second = Step(1000, 400, 900, 1800), Step(1250, 400, 1500, 2000)
    assert knee([first, second]) is None
    assert next_rate([first, second], 1000) is None


def test_percentiles_are_of_the_answers_between_two_counts() -> None:
    early = Counts(1.0, 100, answered=10, refused=0, failed=0, times={5: 10})
    late = Counts(3.0, 100, answered=110, refused=4, failed=2, times={5: 60, 9: 49, 800: 1})
    span = between(early, late)
    assert (span.answered, span.refused, span.failed) == (50, 2, 1)
    assert (span.p50_ms, span.p95_ms, span.p99_ms) == (5, 9, 9)
    assert percentile({}, 99) is None
