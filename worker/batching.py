"""Pure: which of the waiting requests form the next batch. No clock, no Redis, no engine.

The cost of a batch is one formula, and decides alone:

    cost = overhead_tokens + longest x count

padded tokens, and what a batch costs before its first token, in tokens. A batch is worth its real tokens; the next one is that
with the most real tokens a cost. So a request joins as long as it brings more than its padding takes, and no longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from common.transport import Delivery


@dataclass(frozen=True)
class BatchPolicy:
    """`max_wait_s` is how long a batch that is not full waits for company, from the moment its first request was taken."""

    max_batch_requests: int
    max_padded_tokens: int
    max_wait_s: float = 0.0
    overhead_tokens: float = 16.0


class Choice(NamedTuple):
    """Three parts of what waited: computed next, too late to be computed, and still waiting (oldest first)."""

    batch: list[Delivery]
    expired: list[Delivery]
    leftover: list[Delivery]


def choose_batch(waiting: Sequence[Delivery], policy: BatchPolicy, now_s: float) -> Choice:
    """The oldest request and those of like length that make the most of a batch.

    The oldest is always in, so nobody starves; like lengths together keep the padding small. `waiting` is oldest first,
    and no request in it may cost more than the budget by itself (worker/service.py refuses such settings at the start).
    """
    expired = [delivery for delivery in waiting if delivery.expires_at_s <= now_s]
    alive = [delivery for delivery in waiting if delivery.expires_at_s > now_s]
    if not alive:
        return Choice([], expired, [])
    chosen = _most_for_its_cost([delivery.request.length_tokens for delivery in alive], policy)
    batch = [alive[index] for index in sorted(chosen)]
    leftover = [delivery for index, delivery in enumerate(alive) if index not in chosen]
    return Choice(batch, expired, leftover)


def _most_for_its_cost(lengths: Sequence[int], policy: BatchPolicy) -> set[int]:
    """Indices into `lengths`, 0 among them. For a given longest request the next longest pad least, so only runs of requests
    sorted by length are looked at: all that hold the oldest, at once."""
    order = np.argsort(lengths, kind="stable")
    ordered = np.asarray(lengths)[order]
    oldest = int(np.flatnonzero(order == 0)[0])
    first, last = np.arange(oldest + 1)[:, None], np.arange(oldest, len(ordered))
    upto = np.concatenate(([0], np.cumsum(ordered)))
    real_tokens = upto[last + 1] - upto[first]
    counts = last - first + 1
    padded_tokens = ordered[last] * counts
    fits = (counts <= policy.max_batch_requests) & (padded_tokens <= policy.max_padded_tokens)
    worth = np.where(fits, real_tokens / (policy.overhead_tokens + padded_tokens), 0.0)
    begin, end = np.unravel_index(worth.argmax(), worth.shape)
    return set(order[int(begin) : oldest + int(end) + 1].tolist())
