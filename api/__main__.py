"""`python -m api`: options -> settings -> uvicorn. It does not know how the service is deployed."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import uvicorn

from api.protocol import bounded_protocol
from api.settings import ApiSettings
from common.command_line import parse, refuse
from common.errors import StartupError
from common.logs import set_up_logging

log = logging.getLogger("fillmask.api")

LAST_REQUESTS_S = 0.1
"""Connections that were accepted last get so long to send their request."""


class Server(uvicorn.Server):
    """uvicorn, with this project's way to stop: not ready first, then drain, exit 0; a second signal forces."""

    def __init__(self, config: uvicorn.Config, drain_notice_s: float, shares_listener: bool) -> None:
        super().__init__(config)
        self._drain_notice_s = drain_notice_s
        self._shares_listener = shares_listener

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        load = self.config.app.state.dispatcher.load  # type: ignore[union-attr]
        if load.draining:
            self.should_exit = self.force_exit = True
        load.draining = True
        log.info("draining: not ready any more, accepting for another %s s", self._drain_notice_s)
        asyncio.get_running_loop().call_later(self._drain_notice_s, setattr, self, "should_exit", True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers whom the kernel has let in already: to end a listener, or a connection not read yet, is to reset them."""
        last = [connection for listener in sockets or () for connection in self._end(listener)]
        for server in self.servers:
            server.close()
        for connection in last:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)
        if not self.force_exit:
            await asyncio.sleep(LAST_REQUESTS_S)
        await super().shutdown(sockets)

    def _end(self, listener: socket.socket) -> list[socket.socket]:
        """Those who wait to be accepted, the last ones. A listener that is shared goes on: others accept from it."""
        waiting: list[socket.socket] = []
        listener.setblocking(False)
        with suppress(OSError):  # until there is nobody any more
            while True:
                waiting.append(listener.accept()[0])
        if not self._shares_listener:
            listener.shutdown(socket.SHUT_RDWR)
        return waiting

    def _protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )


def run(settings: ApiSettings) -> int:
    """Serves until told to stop. Returns the exit code."""
    set_up_logging(settings.log_level, settings.log_format)
    if settings.metrics_dir:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(settings.metrics_dir)
    from api.app import create_app  # after the variable above: prometheus_client reads it when imported

    listener = listen(settings)
    _look_at_server(settings.redis_url)
    config = uvicorn.Config(
        create_app(settings),
        http=bounded_protocol(settings.receive_s),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),  # the caller's address, by which rates are limited without keys
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=settings.drain_s,
    )
    server = Server(config, settings.drain_notice_s, shares_listener=settings.fd is not None)
    server.run(sockets=[listener])
    return 0 if server.started else 1


def _look_at_server(url: str) -> None:
    """Warns of a server that will do harm; one that is away is waited for. Raises StartupError if it is too old."""
    from common.connection import TRANSPORT_ERRORS, explain, look_at_server  # imports redis, which --help does not need

    try:
        for warning in look_at_server(url):
            log.warning(warning)
    except TRANSPORT_ERRORS as error:
        log.warning("%s; serving 503 until it is there", explain(error))


def listen(settings: ApiSettings) -> socket.socket:
    """The listening socket: the inherited one, or a new one. Raises StartupError if the address cannot be had."""
    if settings.fd is not None:
        return socket.socket(fileno=settings.fd)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise StartupError(f"cannot listen on {settings.host} port {settings.port}: {error.strerror}") from None
    listener.listen(2048)
    listener.set_inheritable(True)
    return listener


def main(arguments: list[str] | None = None) -> int:
    settings = parse(ApiSettings, sys.argv[1:] if arguments is None else arguments, "fillmask api")
    try:
        return run(settings)
    except StartupError as error:
        return refuse("fillmask api", error)


if __name__ == "__main__":
    sys.exit(main())
