"""What is told of a request when a worker is done with it: a log line, its spans if its caller is traced, a dead letter's count.

The line is for debugging, unless the request failed; its id is the one that the front-end's line has. It decides nothing.
"""

import logging
import time
from collections.abc import Sequence

from common.messages import PredictFailure, Reply
from common.tracing import Traces
from common.transport import DeadLetter, Delivery
from worker import metrics
from worker.isolation import Computed, Outcome

log = logging.getLogger("fillmask.requests")

_ORDINARY = ("", "deadline")
"""Not the worker's failure: under overload there would be a line for each that came too late."""


def tell(outcome: Outcome, replies: Sequence[Reply], traces: Traces | None) -> None:
    """Costs next to nothing when neither debug lines nor traces are wanted."""
    debugging = log.isEnabledFor(logging.DEBUG)
    for delivery, reply in zip(outcome.deliveries, replies, strict=True):
        reason = reply.reason if isinstance(reply, PredictFailure) else ""
        if debugging or reason not in _ORDINARY:
            _log(delivery, reply, reason)
        if traces and delivery.request.trace_context:
            _trace(traces, delivery, outcome, reason)


def bury(letter: DeadLetter) -> None:
    """What killed its workers never reached the end of a batch: without this line nobody could look for it here."""
    metrics.DEAD_LETTERS.labels(letter.reason).inc()
    fields: dict[str, object] = {"outcome": letter.reason, "deliveries": letter.deliveries}
    if letter.request:
        request = {"request_id": letter.request.http_request_id, "tokens": letter.request.length_tokens}
        fields = request | fields
    log.warning("request", extra={"fields": fields})


def _log(delivery: Delivery, reply: Reply, reason: str) -> None:
    fields: dict[str, object] = {
        "request_id": delivery.request.http_request_id,
        "outcome": reason or "ok",
        "tokens": delivery.request.length_tokens,
    }
    if not isinstance(reply, PredictFailure):
        fields |= {
            "queue_ms": round(reply.queue_ms, 2),
            "inference_ms": round(reply.inference_ms, 2),
            "batch_requests": reply.batch_requests,
        }
    log.log(logging.DEBUG if reason in _ORDINARY else logging.WARNING, "request", extra={"fields": fields})


def _trace(traces: Traces, delivery: Delivery, outcome: Outcome, reason: str) -> None:
    """How long it waited, and the batch that it was in. One that failed has a single span, up to now."""
    tokens = delivery.request.length_tokens
    context, put_at_s = delivery.request.trace_context, delivery.put_at_s
    if not isinstance(outcome, Computed):
        traces.tell("failed", context, (put_at_s, time.monotonic()), {"fillmask.tokens": tokens}, reason)
        return
    started_s, ended_s = outcome.started_s, outcome.started_s + outcome.took_s
    batch = {"fillmask.tokens": tokens, "fillmask.batch_requests": len(outcome.deliveries)}
    traces.tell("queue", context, (put_at_s, started_s), {"fillmask.tokens": tokens})
    traces.tell("batch", context, (started_s, ended_s), batch, reason)
