"""Pure: may these requests enter, and if not, when should they come back? No clock, no Redis; the dispatcher asks it."""

from dataclasses import dataclass

from common.errors import NoWorker, Overloaded, TransportAway, Unavailable

NO_WORKER_GRACE_S = 5.0
"""A service whose only worker is being replaced goes on accepting for so long: the next one will find the queue."""

_SURE = 0.8
"""The part of its deadline that a request may be expected to wait; the rest is for its own batch and for surprises."""

_NO_WAIT_S = 0.05
"""Nobody is overloaded who makes callers wait for less: a deadline that this is too long for is missed, not refused."""

_LEAST_RETRY_S = 0.1
_MOST_RETRY_S = 30.0


@dataclass(frozen=True)
class Limits:
    max_in_flight: int
    max_backlog: int


@dataclass(slots=True)
class Load:
    """What a front-end knows of itself and of the queue; `away` and `no_worker` are reasons, empty when all is well.

    draining              this front-end is going away: not ready any more, but what still arrives is served
    no_worker_s           how long there has been no worker, in seconds
    backlog               requests in the stream when it was last told, of all front-ends
    oldest_s              how long the first of them had been there, waiting or being computed
    capacity_requests_s   of all live workers together; 0 while none has been measured
    """

    draining: bool = False
    away: str = ""
    no_worker: str = "no worker has been seen yet"
    no_worker_s: float = float("inf")
    in_flight: int = 0
    backlog: int = 0
    oldest_s: float = 0.0
    capacity_requests_s: float = 0.0

    def reason(self) -> str:
        """Why no request can be served now; empty if it can."""
        return ("this front-end is shutting down" if self.draining else "") or self.away or self.no_worker

    def wait_s(self) -> float:
        """How long a request put now would wait, as far as that can be told."""
        return self.backlog / self.capacity_requests_s if self.capacity_requests_s else 0.0


def refusal(load: Load, limits: Limits, requests: int, timeout_s: float) -> Unavailable | None:
    """The error to raise instead of accepting `requests` more texts with that deadline; None to let them in."""
    if load.away:
        return TransportAway(load.away)
    if load.no_worker and load.no_worker_s > NO_WORKER_GRACE_S:
        return NoWorker(load.no_worker)
    wait_s = load.wait_s()
    retry_s = min(max(wait_s, _LEAST_RETRY_S), _MOST_RETRY_S)
    if load.in_flight + requests > limits.max_in_flight:
        return Overloaded(f"this front-end holds {load.in_flight} texts, at most {limits.max_in_flight}", retry_s)
    if load.backlog + requests > limits.max_backlog:
        return Overloaded(f"{load.backlog} texts wait already, at most {limits.max_backlog}", retry_s)
    if wait_s > max(_SURE * timeout_s, _NO_WAIT_S):
        return Overloaded(f"the wait is about {wait_s:.1f} s, longer than the deadline of this request", retry_s)
    return None
