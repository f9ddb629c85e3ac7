"""A batch that fails is retried in halves, so that only the guilty request fails. It knows no threads and no Redis."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from common.errors import EngineBroken
from common.transport import Delivery
from worker.engines.base import TopTokens

log = logging.getLogger("fillmask.isolation")


class Computed(NamedTuple):
    """Deliveries that ran as one batch, and what the model says of them. Times in seconds, on the monotonic clock."""

    deliveries: Sequence[Delivery]
    top: TopTokens
    padded_tokens: int
    started_s: float
    took_s: float


class Failed(NamedTuple):
    """Deliveries that get the same failure: one that fails the engine even alone, or one that came too late."""

    deliveries: Sequence[Delivery]
    reason: str
    message: str


Outcome: TypeAlias = Computed | Failed


def in_halves(deliveries: Sequence[Delivery], run: Callable[[Sequence[Delivery]], Computed]) -> Iterator[Outcome]:
    """Runs deliveries whose batch failed before. Raises EngineBroken at once: a lost device cannot isolate anything."""
    middle = len(deliveries) // 2
    for part in filter(None, (deliveries[:middle], deliveries[middle:])):
        try:
            yield run(part)
        except EngineBroken:
            raise
        except Exception as error:
            if len(part) > 1:
                yield from in_halves(part, run)
            else:
                yield _guilty(part, error)


def _guilty(alone: Sequence[Delivery], error: Exception) -> Failed:
    kind, request = type(error).__name__, alone[0].request
    told = {"fields": {"request_id": request.http_request_id, "tokens": request.length_tokens}}
    log.error("a request fails the engine: %s", kind, exc_info=error, extra=told)
    if isinstance(error, ValueError):
        return Failed(alone, "unfit", "the request does not fit the model this worker serves")
    return Failed(alone, "engine_error", f"the engine failed on this request ({kind})")
