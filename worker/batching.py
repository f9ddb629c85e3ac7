"""Pure: which of the waiting requests form the next batch. No clock, no Redis, no arrays.

The cost of a batch is one formula, `longest x count` padded tokens, and decides alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from common.transport import Delivery


@dataclass(frozen=True)
class BatchPolicy:
    """`max_wait_s` is how long a batch that is not full waits for company, from the moment its first request was taken."""

    max_batch_requests: int
    max_padded_tokens: int
    max_wait_s: float = 0.0


class Choice(NamedTuple):
    """Three parts of what waited: computed next, too late to be computed, and still waiting (oldest first)."""

    batch: list[Delivery]
    expired: list[Delivery]
    leftover: list[Delivery]


def choose_batch(waiting: Sequence[Delivery], policy: BatchPolicy, now_s: float) -> Choice:
    """The oldest request and those nearest to it in length, as many as the budget takes.

    The oldest is always in, so nobody starves; like lengths together keep the padding small. `waiting` is oldest first,
    and no request in it may cost more than the budget by itself (worker/service.py refuses such settings at the start).
    """
    expired = [delivery for delivery in waiting if delivery.expires_at_s <= now_s]
    alive = [delivery for delivery in waiting if delivery.expires_at_s > now_s]
    if not alive:
        return Choice([], expired, [])
    wanted = alive[0].request.length_tokens
    by_nearness = sorted(range(1, len(alive)), key=lambda index: abs(alive[index].request.length_tokens - wanted))
    chosen = {0}
    longest = wanted
    for index in by_nearness:
        longest = max(longest, alive[index].request.length_tokens)
        if len(chosen) == policy.max_batch_requests or longest * (len(chosen) + 1) > policy.max_padded_tokens:
            break
        chosen.add(index)
    batch = [alive[index] for index in sorted(chosen)]
    leftover = [delivery for index, delivery in enumerate(alive) if index not in chosen]
    return Choice(batch, expired, leftover)
