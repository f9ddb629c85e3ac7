"""uvicorn's HTTP protocol, with an end to patience: for slow and endless senders, and for what nobody will read.

uvicorn itself bounds idle keep-alive connections only; a client that sends a byte a second would hold its connection for ever.
It does not bound how slowly a client *reads*: answers are small, and a proxy in front is the place for that. It upgrades
to no other protocol, and serves who asks for one as if it had not: Java's own client asks for HTTP/2 with every request.
"""

import asyncio
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from pydantic_core import to_json
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.security_headers import SECURITY_HEADERS

_SECURITY = "".join([f"{name}: {value}\r\n" for name, value in SECURITY_HEADERS.items()]).encode()

MAX_HEAD_BYTES = 64 << 10
"""Request line and headers together. The parser has no limit of its own: 50 MB of headers were taken, and answered."""

MAX_FRAMING_BYTES = 1 << 20
"""Whatever else is no body: chunks' own headers and extensions, trailers. The largest body may still come in tiny chunks."""

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
        self._passed_over = False  # this request asks for another protocol, and is parsed once more without that wish
        self._head_bytes = 0
        self._head_complete = False
        self._framing_bytes = 0
        self._thrown_away_bytes = 0
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for(self.receive_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        unparsed = data
        try:
            while unparsed:
                unparsed = self._parse(unparsed)
        except HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if self._arriving:  # most requests arrive at once and never need a timer
            self._still_arriving(len(data))

    def on_message_begin(self) -> None:
        self._arriving, self._passed_over = True, False
        self._head_bytes, self._head_complete, self._framing_bytes = 0, False, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_bytes = len(self.url) + sum([len(name) + len(value) for name, value in self.headers])
        if self._head_bytes > MAX_HEAD_BYTES:
            raise HttpParserError  # ends the parser, and comes back as send_400_response
        self._head_complete = True
        self._passed_over = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._passed_over:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._framing_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._passed_over:
            return
        self._arriving = False
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._arriving:
            self._stop_waiting()
            self._wait_for(LINGER_S)

    def send_400_response(self, msg: str) -> None:
        if self._head_bytes > MAX_HEAD_BYTES:
            told = f"the headers are larger than the limit of {MAX_HEAD_BYTES} bytes"
            self._refuse(b"431 Request Header Fields Too Large", "headers_too_large", told)
        else:
            self._refuse(b"400 Bad Request", "malformed_request", msg.rstrip("."))

    def _parse(self, data: bytes) -> bytes:
        """Feeds the parser. Returns what is to be fed next: it takes all that follows a wish for another protocol for that
        protocol, a body and further requests included, so another parser gets that request without the wish, and the rest."""
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as ended:
            if self._passed_over:
                head = self._head_without_upgrade()
                self.parser = HttpRequestParser(self)
                return head + data[ended.args[0] :]
        return b""

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%s: %s" % (name, value) for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join((b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version), *lines, b"", b""))

    def _still_arriving(self, more_bytes: int) -> None:
        if self._patience is None:
            self._wait_for(self.receive_s)
        if not self._head_complete:
            self._head_bytes += more_bytes
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("")
        self._framing_bytes += more_bytes
        if self._framing_bytes > MAX_FRAMING_BYTES:
            self.transport.close()
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
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%sconnection: close\r\n\r\n"
        self.transport.write(head % (status, len(body), _SECURITY) + body)
        self.transport.close()


def bounded_protocol(receive_s: float) -> type[BoundedProtocol]:
    """The class that uvicorn makes an instance of for each connection."""
    return type("BoundedProtocol", (BoundedProtocol,), {"receive_s": receive_s})
