"""Pure ASGI layers around the application: an id, one log line, metrics and a span a request, and a limit on bodies.

Starlette's BaseHTTPMiddleware costs a task and a queue a request; these cost two function calls.
"""

import logging
import re
import secrets
import time
from itertools import count
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import metrics
from api.admission import Load
from common.errors import BodyTooLarge
from common.tracing import Traces, end

log = logging.getLogger("fillmask.access")

_PROBES = frozenset(("/healthz", "/readyz", "/metrics", "/status"))
"""Asked every few seconds by machines and by the page; their lines would hide the others."""

_REQUEST_ID = re.compile(rb"[\w.:-]{1,64}")


class RequestContext:
    """Gives each request an id (the caller's own if it sent one), returns it, and logs and counts the outcome.

    While the process drains it asks clients to close their connections: one that is closed under a client that has just
    sent its next request would lose it.
    """

    def __init__(self, app: ASGIApp, load: Load, access_log: bool) -> None:
        self._app = app
        self._load = load
        self._access_log = access_log
        self._prefix = secrets.token_hex(4)
        self._counter = count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        request_id = self._request_id(scope)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id.decode()
        status = 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"x-request-id", request_id))
                if self._load.draining:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            self._record(scope, status, time.perf_counter() - started)

    def _request_id(self, scope: Scope) -> bytes:
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
                sent: bytes = value
                return sent
        return f"{self._prefix}-{next(self._counter):x}".encode()

    def _record(self, scope: Scope, status: int, duration_s: float) -> None:
        route = _route(scope)
        metrics.REQUESTS.labels(route, status).inc()
        metrics.LATENCY.labels(route).observe(duration_s)
        if scope["method"] == "POST":  # all of them are fills
            metrics.RECENT.add(duration_s, failed=status >= 500)
        error_type = scope["state"].get("error_type", "")
        if error_type:
            metrics.REFUSED.labels(error_type).inc()
        level = logging.DEBUG if route in _PROBES else logging.INFO
        if self._access_log and log.isEnabledFor(level):
            outcome = {"route": route, "status": status, "ms": round(duration_s * 1000, 2)}
            log.log(level, "request", extra={"fields": _told(scope["state"]) | outcome})


def _told(state: dict[str, Any]) -> dict[str, str | int]:
    """What the steps of a request left in its state for whoever watches: ids, codes and numbers, never a text."""
    told = {name: state[name] for name in ("request_id", "caller", "error_type") if state.get(name)}
    if trace_context := state.get("trace_context"):
        told["trace_id"] = trace_context.split("-")[1]
    if spent := state.get("spent"):
        told |= {"tokens": spent.tokens, "batch_requests": spent.batch_requests}
    return told


class Traced:
    """A span a request, in the caller's trace if it sent one. In the application only when traces are on."""

    def __init__(self, app: ASGIApp, traces: Traces) -> None:
        self._app = app
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _PROBES:
            await self._app(scope, receive, send)
            return
        span = self._traces.begin(scope["headers"])
        state, status = scope["state"], 500
        state["trace_context"] = self._traces.context_of(span)

        async def send_traced(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, send_traced)
        finally:
            method, route = scope["method"], _route(scope)
            span.update_name(f"{method} {route}")
            http = {"http.request.method": method, "http.route": route, "http.response.status_code": status}
            span.set_attributes(http | {f"fillmask.{name}": told for name, told in _told(state).items()})
            end(span, state.get("error_type", "internal") if status >= 500 else "")


def _route(scope: Scope) -> str:
    """The pattern, never the path that was sent."""
    return getattr(scope.get("route"), "path", "unmatched")


class Heads:
    """Answers HEAD as GET; the server leaves the body out. Some health checks ask so, and FastAPI's routes would refuse it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") != "HEAD":
            await self._app(scope, receive, send)
            return
        asked: Scope = {**scope, "method": "GET"}
        try:
            await self._app(asked, receive, send)
        finally:
            scope["route"] = asked.get("route")


class BodyLimit:
    """Refuses a body as soon as more than `max_body_bytes` have really arrived, or at once if that is what is announced.

    The refusal is raised where the body is read, and answered like any other; api/protocol.py deals with the rest of the body.
    """

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        received, announced_too_large = 0, self._announced_too_large(scope)

        async def receive_limited() -> Message:
            nonlocal received
            if not announced_too_large:  # else who waits for "100 Continue" would be told to send it
                message = await receive()
                received += len(message.get("body", b""))
                if received <= self._max_body_bytes:
                    return message
            raise BodyTooLarge(
                f"the body is larger than the limit of {self._max_body_bytes} bytes", limit=self._max_body_bytes
            )

        await self._app(scope, receive_limited, send)

    def _announced_too_large(self, scope: Scope) -> bool:
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        return any(int(value) > self._max_body_bytes for value in lengths if value.isdigit())
