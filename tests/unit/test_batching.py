"""worker/batching.py: who goes into the next batch."""

from hypothesis import given
from hypothesis import strategies as st

from common.messages import PredictRequest
from common.transport import Delivery
from worker.batching import BatchPolicy, choose_batch

POLICY = BatchPolicy(max_batch_requests=8, max_padded_tokens=512)


def waiting(lengths: list[int], expires_at_s: float = 10.0) -> list[Delivery]:
    return [
        Delivery(str(index).encode(), PredictRequest(b"", "f", 0, bytes(4 * length), b"", 5), 0.0, expires_at_s)
        for index, length in enumerate(lengths)
    ]


def lengths(deliveries: list[Delivery]) -> list[int]:
    return [delivery.request.length_tokens for delivery in deliveries]


def test_nothing_waits_nothing_is_chosen() -> None:
    assert choose_batch([], POLICY, 0.0) == ([], [], [])


def test_the_budget_counts_padding() -> None:
    choice = choose_batch(waiting([256, 256, 256]), POLICY, 0.0)
    assert lengths(choice.batch) == [256, 256]
    assert lengths(choice.leftover) == [256]


def test_like_lengths_go_together() -> None:
    choice = choose_batch(waiting([10, 100, 12, 90, 11, 9, 8, 10, 13, 9]), POLICY, 0.0)
    assert lengths(choice.batch) == [10, 12, 11, 9, 8, 10, 13, 9]
    assert lengths(choice.leftover) == [100, 90]


def test_the_expired_are_sorted_out_before_the_model_runs() -> None:
    late, early = waiting([5, 6], expires_at_s=1.0), waiting([7], expires_at_s=3.0)
    choice = choose_batch([*late, *early], POLICY, now_s=2.0)
    assert (choice.expired, choice.batch, choice.leftover) == (late, early, [])


@given(st.lists(st.integers(1, 512), min_size=1, max_size=40))
def test_whatever_waits(waiting_lengths: list[int]) -> None:
    everybody = waiting(waiting_lengths)
    choice = choose_batch(everybody, POLICY, 0.0)
    assert everybody[0] in choice.batch, "the oldest is always served"
    assert sorted(choice.batch + choice.leftover) == sorted(everybody), "nobody is lost or doubled"
    assert choice.leftover == sorted(choice.leftover, key=everybody.index), "the rest keeps its order"
    assert len(choice.batch) <= POLICY.max_batch_requests
    assert max(lengths(choice.batch)) * len(choice.batch) <= POLICY.max_padded_tokens
