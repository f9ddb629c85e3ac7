"""worker/isolation.py: only the guilty request fails."""

from collections.abc import Sequence

import numpy as np
import pytest

from common.errors import EngineBroken
from common.messages import PredictRequest
from common.transport import Delivery
from worker.engines.base import TopTokens
from worker.isolation import Computed, Failed, in_halves

NOTHING = TopTokens(np.empty((0, 0), np.int32), np.empty((0, 0), np.float32), np.empty(0, np.float32))


def deliveries(count: int) -> list[Delivery]:
    return [Delivery(str(n).encode(), PredictRequest(b"", "f", 0, b"", b"", 1), 0.0, 1.0) for n in range(count)]


@pytest.mark.parametrize("guilty", [{3}, {0}, {1, 6}, set(range(8)), set()])
def test_only_the_guilty_fail(guilty: set[int]) -> None:
    everybody = deliveries(8)
    bad = [everybody[index] for index in guilty]

    def run(part: Sequence[Delivery]) -> Computed:
        if any(delivery in bad for delivery in part):
            raise RuntimeError("poison")
        return Computed(part, NOTHING, 0, 0.0, 0.0)

    outcomes = list(in_halves(everybody, run))
    failed = [delivery for outcome in outcomes if isinstance(outcome, Failed) for delivery in outcome.deliveries]
    assert failed == sorted(bad)
    assert [delivery for outcome in outcomes for delivery in outcome.deliveries] == everybody


def test_a_request_that_does_not_fit_is_told_so() -> None:
    def run(_: Sequence[Delivery]) -> Computed:
        raise ValueError("token id 99999")

    (outcome,) = in_halves(deliveries(1), run)
    assert isinstance(outcome, Failed)
    assert outcome.reason == "unfit"


def test_a_broken_device_isolates_nothing() -> None:
    def run(_: Sequence[Delivery]) -> Computed:
        raise EngineBroken("device lost")

    with pytest.raises(EngineBroken):
        list(in_halves(deliveries(4), run))
