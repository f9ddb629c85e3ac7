"""api/admission.py: who may enter, and who is told when to come back."""

import pytest

from api.admission import Limits, Load, refusal
from common.errors import Draining, NoWorker, Overloaded, TransportAway, Unavailable

LIMITS = Limits(max_in_flight=100, max_backlog=1000)


def test_an_idle_service_takes_all() -> None:
    assert refusal(Load(), LIMITS, requests=100, timeout_s=1.0) is None


@pytest.mark.parametrize(
    ("load", "error"),
    [
        (Load(draining=True), Draining),
        (Load(away="Redis does not answer"), TransportAway),
        (Load(no_worker="no worker serves this model"), NoWorker),
        (Load(in_flight=100), Overloaded),
        (Load(backlog=1000), Overloaded),
        (Load(backlog=900, capacity_requests_s=100), Overloaded),
    ],
    ids=["draining", "Redis away", "no worker", "front-end full", "queue full", "would be too late"],
)
def test_refusals(load: Load, error: type[Unavailable]) -> None:
    refused = refusal(load, LIMITS, requests=1, timeout_s=1.0)
    assert type(refused) is error


def test_retry_after_is_backlog_over_capacity() -> None:
    refused = refusal(Load(backlog=900, capacity_requests_s=100), LIMITS, requests=1, timeout_s=1.0)
    assert refused is not None
    assert refused.retry_after_s == pytest.approx(9.0)


def test_readiness_names_the_first_reason() -> None:
    assert Load().reason() == ""
    assert "shutting down" in Load(draining=True, away="x").reason()
    assert Load(away="Redis does not answer", no_worker="y").reason() == "Redis does not answer"
