"""`python -m api`: options -> settings -> uvicorn. It does not know how the service is deployed."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from api.protocol import bounded_protocol
from api.settings import ApiSettings
from common.command_line import parse, refuse
from common.errors import StartupError
from common.logs import set_up_logging

log = logging.getLogger("fillmask.api")


class Server(uvicorn.Server):
    """uvicorn, with this project's way to stop: not ready first, then drain, exit 0; a second signal forces."""

    def __init__(self, config: uvicorn.Config, drain_notice_s: float) -> None:
        super().__init__(config)
        self._drain_notice_s = drain_notice_s

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
        asyncio.get_running_loop().call_later(self._drain_notice_s, setattr, self, "should_exit", True)


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
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here depends on the caller's address or scheme
        timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=settings.drain_s,
    )
    server = Server(config, settings.drain_notice_s)
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
