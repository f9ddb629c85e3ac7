"""A balancer as nginx is one: it follows /readyz, keeps connections, and sends no request a second time."""

import asyncio
import threading
from contextlib import suppress
from typing import NamedTuple

LOOK_EVERY_S = 0.05


class Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Balancer:
    """Serves 127.0.0.1:port from the back-ends whose /readyz says 200. `failed` counts what became of no answer."""

    def __init__(self) -> None:
        self.port = 0
        self.ready: set[int] = set()
        self.failed = 0
        self._ports: list[int] = []
        self._idle: dict[int, list[Connection]] = {}
        self._turn = 0
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> "Balancer":
        self._thread.start()
        self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(10)

    def add(self, port: int) -> None:
        self._ports.append(port)

    async def _run(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        while not self._stopping.is_set():
            for port in self._ports:
                await self._look(port)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), LOOK_EVERY_S)
        server.close()
        for port in self._ports:
            self._turn_away(port)

    async def _look(self, port: int) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
            head, _ = await _asked(connection, b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            connection.writer.close()
            if b" 200 " in head:
                self.ready.add(port)
                return
        self._turn_away(port)

    def _turn_away(self, port: int) -> None:
        self.ready.discard(port)
        for connection in self._idle.pop(port, ()):
            connection.writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head, body = await _message(reader)
                writer.write(await self._answer(head + body))
        writer.close()

    async def _answer(self, request: bytes) -> bytes:
        port, connection = await self._connected()
        try:
            head, body = await _asked(connection, request)
        except (
            OSError,
            asyncio.IncompleteReadError,
        ):  # it had the request: it may have been served, so it is not sent again
            self.failed += 1
            return b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n"
        if b"\r\nconnection: close" in head.lower() or port not in self.ready:
            connection.writer.close()
        else:
            self._idle.setdefault(port, []).append(connection)
        return head + body

    async def _connected(self) -> tuple[int, Connection]:
        """To the next one that is ready; one that cannot be connected to is passed over."""
        while True:
            ready = sorted(self.ready) or self._ports
            self._turn += 1
            port = ready[self._turn % len(ready)]
            idle = [connection for connection in self._idle.pop(port, []) if not connection.reader.at_eof()]
            if idle:
                self._idle[port] = idle[1:]
                return port, idle[0]
            try:
                return port, Connection(*await asyncio.open_connection("127.0.0.1", port))
            except OSError:
                self._turn_away(port)


async def _asked(connection: Connection, request: bytes) -> tuple[bytes, bytes]:
    connection.writer.write(request)
    return await _message(connection.reader)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and body of a request or an answer. Raises IncompleteReadError at the connection's end."""
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return head, await reader.readexactly(int(lengths[0][15:])) if lengths else b""
