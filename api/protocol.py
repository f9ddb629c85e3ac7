"""uvicorn's HTTP protocol, with an end to patience: slow senders are cut off, and what nobody will read is not waited for.

uvicorn itself bounds idle keep-alive connections only; a client that sends a byte a second would hold its connection for ever.
It does not bound how slowly a client *reads*: answers are small, and a proxy in front is the place for that.
"""

import asyncio
from typing import Any

from pydantic_core import to_json
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LINGER_S = 1.0
"""A request that is answered before it has arrived whole (413) is read on for so long and thrown away: closing at once would
reset the connection, and the answer would be lost on the client's side."""

LINGER_BYTES = 16 << 20
"""No more than this of it: a second is time enough for gigabytes."""


class BoundedProtocol(HttpToolsProtocol):
    """A request must have arrived whole within `receive_s` of its first byte, and the first one of the connection being made."""

    receive_s: float

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._arriving = False
        self._thrown_away_bytes = 0
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for(self.receive_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._arriving:  # most requests arrive at once and never need a timer
            self._still_arriving(len(data))

    def on_message_begin(self) -> None:
        self._arriving = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._arriving = False
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._arriving:
            self._stop_waiting()
            self._wait_for(LINGER_S)

    def send_400_response(self, msg: str) -> None:
        self._refuse(b"400 Bad Request", "malformed_request", msg.rstrip("."))

    def _still_arriving(self, more_bytes: int) -> None:
        if self._patience is None:
            self._wait_for(self.receive_s)
        if self.cycle and self.cycle.response_complete:
            self._thrown_away_bytes += more_bytes
            if self._thrown_away_bytes > LINGER_BYTES:
                self.transport.close()

    def _wait_for(self, duration_s: float) -> None:
        self._patience = self.loop.call_later(duration_s, self._lose_patience)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self) -> None:
        self._patience = None
        if self.transport.is_closing():
            return
        if self.pipeline:  # it is we who do not read: an earlier request of this connection is still being answered
            self._wait_for(self.receive_s)
        elif self._arriving and not (self.cycle and self.cycle.response_started):
            told = f"the request did not arrive whole within {self.receive_s:g} s"
            self._refuse(b"408 Request Timeout", "request_timeout", told)
        else:
            self.transport.close()

    def _refuse(self, status: bytes, error_type: str, message: str) -> None:
        body = to_json({"error": message, "error_type": error_type})
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status, len(body)) + body)
        self.transport.close()


def bounded_protocol(receive_s: float) -> type[BoundedProtocol]:
    """The class that uvicorn makes an instance of for each connection."""
    return type("BoundedProtocol", (BoundedProtocol,), {"receive_s": receive_s})
