"""worker/batching.py: who goes into the next batch."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
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
    choice = choose_batch(waiting([10, 100, 10, 90, 11, 10, 9, 10, 10, 12]), replace(POLICY, overhead_tokens=50), 0.0)
    assert lengths(choice.batch) == [10, 10, 11, 10, 9, 10, 10, 12]
    assert lengths(choice.leftover) == [100, 90]


def test_a_request_joins_if_it_brings_more_than_its_padding_takes() -> None:
    """The cost is overhead + longest x count: 9 real tokens more are worth 9 more, but not 80 more."""
    assert lengths(choose_batch(waiting([9, 9, 9, 9, 20]), POLICY, 0.0).batch) == [9, 9, 9, 9]
    dear = replace(POLICY, overhead_tokens=1000)
    assert lengths(choose_batch(waiting([9, 9, 9, 9, 20]), dear, 0.0).batch) == [9, 9, 9, 9, 20]


def test_the_oldest_is_served_even_if_its_length_is_nobody_elses() -> None:
    assert lengths(choose_batch(waiting([512, 10, 10, 10, 10]), POLICY, 0.0).batch) == [512]


def test_b14_a_lone_request_is_a_batch() -> None:
    """Who waits for company, and how long, is up to worker/pipeline.py: by default nobody, not at all."""
    assert lengths(choose_batch(waiting([9]), POLICY, 0.0).batch) == [9]
    assert POLICY.max_wait_s == 0


def test_b14_at_saturation_batches_fill() -> None:
    choice = choose_batch(waiting([9] * 100), POLICY, 0.0)
    assert len(choice.batch) == POLICY.max_batch_requests


LENGTHS: dict[str, Callable[[random.Random], int]] = {
    "any length": lambda chance: chance.randint(8, 128),
    "mostly short": lambda chance: min(128, max(8, int(chance.lognormvariate(3.1, 0.6)))),
    "two kinds": lambda chance: chance.choice([10, 12, 100, 120]),
}


@pytest.mark.parametrize("mix", LENGTHS)
@pytest.mark.parametrize(
    "policy",
    [
        BatchPolicy(64, 512, overhead_tokens=16),
        BatchPolicy(64, 8192, overhead_tokens=64),
        BatchPolicy(512, 16_384, overhead_tokens=400),
    ],
    ids=["slow CPU", "fast CPU", "GPU"],
)
def test_little_is_padding_and_nobody_waits_for_long(policy: BatchPolicy, mix: str) -> None:
    """Under load: after each batch the queue is filled up to the two batches that a worker looks at."""
    chance = random.Random(14)
    queue: list[Delivery] = []
    batches, padded, real, oldest_waits = 0, 0, 0, 0
    since: dict[bytes, int] = {}
    while batches < 60:
        new = [LENGTHS[mix](chance) for _ in range(2 * policy.max_batch_requests - len(queue))]
        for number, delivery in enumerate(waiting(new)):
            named = delivery._replace(entry_id=b"%d-%d" % (batches, number))
            since[named.entry_id] = batches
            queue.append(named)
        queued = len(queue)
        choice = choose_batch(queue, policy, 0.0)
        assert queue[0] in choice.batch
        oldest_waits = max(oldest_waits, *(batches - since[delivery.entry_id] for delivery in choice.batch))
        padded += max(lengths(choice.batch)) * len(choice.batch)
        real += sum(lengths(choice.batch))
        queue, batches = choice.leftover, batches + 1
        assert oldest_waits < queued
    assert padded / real <= 1.25
    assert oldest_waits <= 45


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
