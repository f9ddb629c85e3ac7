"""Pure ASGI layers around the application: a request id, one log line and metrics a request, and a limit on bodies.

Starlette's BaseHTTPMiddleware costs a task and a queue a request; these cost two function calls.
"""

import logging
import re
import secrets
import time
from itertools import count

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import metrics
from api.admission import Load
from common.errors import BodyTooLarge

log = logging.getLogger("fillmask.access")

_PROBES = frozenset(("/healthz", "/readyz", "/metrics"))
"""Asked every few seconds by machines; their lines would hide the others."""

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
        route = getattr(scope.get("route"), "path", "unmatched")  # the pattern, never the path that was sent
        metrics.REQUESTS.labels(route, status).inc()
        metrics.LATENCY.labels(route).observe(duration_s)
        error_type = scope["state"].get("error_type", "")
        if error_type:
            metrics.REFUSED.labels(error_type).inc()
        if self._access_log:
            outcome = {
                "request_id": scope["state"]["request_id"],
                "route": route,
                "status": status,
                "ms": round(duration_s * 1000, 2),
            }
            level = logging.DEBUG if route in _PROBES else logging.INFO
            log.log(level, "request", extra={"fields": outcome | ({"error_type": error_type} if error_type else {})})


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
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_body_bytes or (message.get("more_body") and self._announced_too_large(scope)):
                raise BodyTooLarge(
                    f"the body is larger than the limit of {self._max_body_bytes} bytes", limit=self._max_body_bytes
                )
            return message

        await self._app(scope, receive_limited, send)

    def _announced_too_large(self, scope: Scope) -> bool:
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        return any(int(value) > self._max_body_bytes for value in lengths if value.isdigit())
