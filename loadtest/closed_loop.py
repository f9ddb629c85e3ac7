"""A closed loop of keep-alive connections, each sending its next request when its last was answered.

It costs about 40 us of CPU a request, a fraction of what a general HTTP client costs, so that on two cores the server and not
the generator is what is measured. It understands just enough HTTP/1.1 for this service: Content-Length, no chunks.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Check = Callable[[bytes, int, bytes], bool]
"""(request body, status, response body) -> was that the right answer?"""


@dataclass(frozen=True)
class Load:
    """What is sent where. With `least_interval_s` a connection waits that long from one request to the next, if the answer
    comes sooner: a steady rate instead of all that the server can do."""

    port: int
    path: str
    bodies: Iterator[bytes]
    connections: int
    duration_s: float
    least_interval_s: float = 0.0


@dataclass
class Outcome:
    """`wrong`: answers that the check refuses; `lost`: requests whose connection ended unanswered; latencies in seconds."""

    answered: int = 0
    wrong: int = 0
    lost: int = 0
    duration_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return self.answered / self.duration_s

    def percentile_ms(self, percent: float) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1000


class _Connection(asyncio.Protocol):
    """Sends, waits for the whole answer, checks it, sends again: until the bodies or the time are used up."""

    def __init__(self, load: Load, check: Check, outcome: Outcome, ends_at: float) -> None:
        self._load = load
        self._check = check
        self._outcome = outcome
        self._ends_at = ends_at
        self._asked: bytes | None = None
        self._received = b""
        self._sent_at = 0.0
        self._loop = asyncio.get_running_loop()
        self.used_up = False
        self.done: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._send()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, answer = self._received.partition(b"\r\n\r\n")
        if self._asked is None or not separator or len(answer) < _content_length(head):
            return
        took_s = time.perf_counter() - self._sent_at
        self._outcome.answered += 1
        self._outcome.latencies_s.append(took_s)
        self._outcome.wrong += not self._check(self._asked, int(head[9:12]), answer)
        self._received, self._asked = b"", None
        if took_s < self._load.least_interval_s:
            self._loop.call_later(self._load.least_interval_s - took_s, self._send)
        else:
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 asyncio's signature
        self._outcome.lost += self._asked is not None
        if not self.done.done():
            self.done.set_result(None)

    def _send(self) -> None:
        if self._transport.is_closing():
            return
        self._sent_at = time.perf_counter()
        self._asked = next(self._load.bodies, None) if self._sent_at < self._ends_at else None
        if self._asked is None:
            self.used_up = True
            self._transport.close()
            return
        head = f"POST {self._load.path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        self._transport.write(f"{head}content-length: {len(self._asked)}\r\n\r\n".encode() + self._asked)


def _content_length(head: bytes) -> int:
    lower = head.lower()
    start = lower.index(b"content-length:") + len(b"content-length:")
    return int(lower[start:].split(b"\r\n", 1)[0])


async def closed_loop(load: Load, check: Check) -> Outcome:
    """All its connections against 127.0.0.1, until the time is over or the bodies are used up."""
    outcome = Outcome()
    started = time.perf_counter()
    ends_at = started + load.duration_s
    await asyncio.gather(*(_keep_asking(load, check, outcome, ends_at) for _ in range(load.connections)))
    outcome.duration_s = time.perf_counter() - started
    return outcome


async def _keep_asking(load: Load, check: Check, outcome: Outcome, ends_at: float) -> None:
    """One client: connects again when a server that goes away has closed its connection between two requests."""
    loop = asyncio.get_running_loop()
    while True:
        _, connection = await loop.create_connection(
            lambda: _Connection(load, check, outcome, ends_at), "127.0.0.1", load.port
        )
        await connection.done
        if connection.used_up or time.perf_counter() >= ends_at:
            return
