"""What tells a browser how little it may do with an answer. A route that needs more brings a policy of its own, which stands."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",  # an answer to a CORS request is none of its business
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

_RAW = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]


class SecurityHeaders:
    """Adds those that the answer does not have yet."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                there = {name for name, _ in headers}
                headers.extend([header for header in _RAW if header[0] not in there])
            await send(message)

        await self._app(scope, receive, send_secured)
