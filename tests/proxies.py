"""A TCP proxy between the service and its Redis: takes packets away, holds them up, or speaks TLS for a Redis that cannot."""

import asyncio
import ssl
import threading
from contextlib import suppress


class Proxy:
    """Forwards 127.0.0.1:port to the target. `black_hole` swallows what comes while it is set; `delay_s` holds it up."""

    def __init__(self, target_port: int, tls: ssl.SSLContext | None = None) -> None:
        self.target_port = target_port
        self._tls = tls
        self.port = 0
        self.black_hole = False
        self.delay_s = 0.0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Proxy":
        self._thread.start()
        self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls))
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(asyncio.sleep(0))  # closed transports end in the next round
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            their_reader, their_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._pump(reader, their_writer), self._pump(their_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                while chunk := await reader.read(65536):
                    if self.black_hole:
                        continue
                    if self.delay_s:
                        await asyncio.sleep(self.delay_s)
                    writer.write(chunk)
                    await writer.drain()
        finally:
            writer.close()
