"""api/admission.py: who may enter, and who is told when to come back."""

from dataclasses import replace
from typing import Any

import pytest

from api.admission import Limits, Load, refusal
from common.errors import NoWorker, Overloaded, TransportAway, Unavailable

LIMITS = Limits(max_in_flight=100, max_backlog=1000)


def a_load(**facts: Any) -> Load:
    """A served front-end, but for these facts."""
    return replace(Load(no_worker="", no_worker_s=0.0), **facts)


def test_an_idle_service_takes_all() -> None:
    assert refusal(a_load(), LIMITS, requests=100, timeout_s=1.0) is None


@pytest.mark.parametrize(
    ("load", "error"),
    [
        (a_load(away="Redis does not answer"), TransportAway),
        (a_load(no_worker="no worker serves this model", no_worker_s=6.0), NoWorker),
        (a_load(in_flight=100), Overloaded),
        (a_load(backlog=1000), Overloaded),
        (a_load(backlog=900, capacity_requests_s=100), Overloaded),
    ],
    ids=["Redis away", "no worker", "front-end full", "queue full", "would be too late"],
)
def test_refusals(load: Load, error: type[Unavailable]) -> None:
    refused = refusal(load, LIMITS, requests=1, timeout_s=1.0)
    assert type(refused) is error


def test_a_deadline_that_no_queue_could_meet_is_missed_not_refused() -> None:
    busy = a_load(backlog=3, capacity_requests_s=100)
    assert refusal(busy, LIMITS, requests=1, timeout_s=0.001) is None
    assert type(refusal(a_load(backlog=30, capacity_requests_s=100), LIMITS, requests=1, timeout_s=0.001)) is Overloaded


def test_a_front_end_that_goes_away_serves_what_still_arrives() -> None:
    assert refusal(a_load(draining=True), LIMITS, requests=1, timeout_s=1.0) is None
    assert "shutting down" in a_load(draining=True).reason()


def test_retry_after_is_backlog_over_capacity() -> None:
    refused = refusal(a_load(backlog=900, capacity_requests_s=100), LIMITS, requests=1, timeout_s=1.0)
    assert refused is not None
    assert refused.retry_after_s == pytest.approx(9.0)


def test_a_worker_that_is_being_replaced_is_waited_for() -> None:
    load = a_load(no_worker="no worker serves this model", no_worker_s=1.0)
    assert refusal(load, LIMITS, requests=1, timeout_s=1.0) is None
    assert load.reason() == "no worker serves this model", "not ready, all the same"


def test_before_the_first_worker_nothing_is_accepted() -> None:
    assert type(refusal(Load(), LIMITS, requests=1, timeout_s=1.0)) is NoWorker


def test_readiness_names_the_first_reason() -> None:
    assert a_load().reason() == ""
    assert "shutting down" in a_load(draining=True, away="x").reason()
    assert a_load(away="Redis does not answer", no_worker="y").reason() == "Redis does not answer"
