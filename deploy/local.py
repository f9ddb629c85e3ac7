"""`fillmask up`: one machine under one supervisor. It starts Redis, workers and front-ends, and says how to try them.

The supervisor owns the listening socket and lends it to the front-ends: a port in use is told at once, and a front-end
that is being replaced refuses nobody. Options reach the children as FILLMASK_* variables, so that no secret shows in `ps`.
"""

import importlib
import os
import secrets
import shlex
import signal
import socket
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import Field

from api.settings import ApiSettings
from common.checkpoint import Checkpoint, open_checkpoint
from common.command_line import parse, refuse
from common.errors import StartupError
from common.keys import Keys
from deploy.child import spawn
from deploy.readiness import Readiness
from deploy.redis_server import RedisServer, check_reachable
from deploy.scratch import scratch_folder
from deploy.supervisor import (
    STARTUP_ERROR,
    Child,
    Process,
    Signals,
    how_it_ended,
    keep_alive,
    kill_all,
    stop_in_order,
    tell,
)
from worker.cores import share_of_cores
from worker.settings import WorkerSettings

_ROOT = Path(__file__).resolve().parent.parent

_BEYOND_DRAIN_S = 10.0
"""What workers and Redis get to end in, once the front-ends have had their drain_s."""

_QUIET_S = 5.0
"""A start that takes longer says what it waits for."""


_SET_FOR_EACH_CHILD = frozenset(("fd", "name", "metrics_dir", "measured_dir"))


class UpSettings(ApiSettings, WorkerSettings):
    """Options of all parts together."""

    api: int = Field(1, ge=1, description="front-end processes")
    workers: int = Field(1, ge=1, description="worker processes")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "warning", description="least level that is logged; info shows one line a request"
    )
    metrics_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="first worker's port for Prometheus metrics, the next one's is one higher; 0: none",
    )


class Service:
    """What runs on this machine, as three groups in the order in which they are stopped."""

    def __init__(self, settings: UpSettings, checkpoint: Checkpoint, listener: socket.socket) -> None:
        self.settings = settings
        self.checkpoint = checkpoint
        self.listener = listener
        self.redis: RedisServer | None = None
        self.redis_url = settings.redis_url
        self._metrics_dir: Path | None = None
        self._measured_dir: Path | None = None
        self._threads = settings.threads or share_of_cores(settings.workers)
        self.front_ends: list[Child] = []
        self.workers: list[Child] = []
        self.servers: list[Child] = []

    @property
    def groups(self) -> tuple[list[Child], list[Child], list[Child]]:
        return self.front_ends, self.workers, self.servers

    def start(self, stack: ExitStack) -> None:
        """Redis first; the others come up together. Raises StartupError; `stack` cleans up in any case."""
        self._start_redis(stack)
        self._measured_dir = stack.enter_context(scratch_folder())
        if self.settings.api > 1:
            self._metrics_dir = stack.enter_context(scratch_folder())
        stack.callback(
            kill_all, (self.front_ends, self.workers)
        )  # before Redis goes, or they would complain about that
        for number in range(self.settings.workers):
            self.workers.append(self._worker(number))
        for number in range(self.settings.api):
            title = f"front-end {number + 1}"
            self.front_ends.append(Child(title, self._spawn_front_end))
        for child in (*self.workers, *self.front_ends):
            child.start()
        importlib.import_module("common.transport")  # while they load: a dead worker's requests must not wait for it

    def until_ready(self, signals: Signals) -> int | None:
        """None when the first request can be served, or a stop was asked for; else the exit code: a child died."""
        readiness = Readiness(self.reachable_at, _QUIET_S)
        children = [child for group in self.groups for child in group]
        while not signals.stops and not readiness.look(signals):
            for child in children:
                code = child.ended()
                if code is not None:
                    return _died_early(child, code)
        readiness.close()
        return None

    def _start_redis(self, stack: ExitStack) -> None:
        if "redis_url" in self.settings.model_fields_set:
            for warning in check_reachable(self.redis_url):
                tell(warning)
            return
        self.redis = RedisServer()
        stack.callback(self.redis.close)
        # Killed, not asked: by then it is empty and it keeps nothing on disk, and one that hangs would hold the stop up.
        child = Child(str(self.redis.binary), partial(_start, self.redis), stop_signal=signal.SIGKILL)
        child.start()
        self.servers.append(child)
        self.redis_url = self.redis.url

    def _worker(self, number: int) -> Child:
        """A worker's place. Each process in it has a name of its own, so that a dead one's requests can be told apart."""
        name = ""

        def start() -> Process:
            nonlocal name
            name = f"{socket.gethostname()}-{secrets.token_hex(4)}"
            port = self.settings.metrics_port and self.settings.metrics_port + number
            alike = {"threads": self._threads, "measured_dir": self._measured_dir}
            return self._spawn("worker", name=name, metrics_port=port, **alike)

        return Child(f"worker {number + 1}", start, lambda: self._hand_over(name))

    def _spawn_front_end(self) -> Process:
        variables = {"metrics_dir": self._metrics_dir} if self._metrics_dir else {}
        return self._spawn("api", "--fd", str(self.listener.fileno()), **variables)

    def _spawn(self, module: str, *flags: str, **variables: object) -> Process:
        common = self.settings.model_dump(exclude=set(_SET_FOR_EACH_CHILD), exclude_none=True)
        options = {**common, "redis_url": self.redis_url, **variables}
        environment = {**os.environ, **{f"FILLMASK_{name.upper()}": str(value) for name, value in options.items()}}
        environment.pop("REDIS_URL", None)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-P", "-m", module, *flags]  # -P: a folder `api` where the user stands is not ours
        return spawn(command, environment, fds=(self.listener.fileno(),) if module == "api" else ())

    def _hand_over(self, worker: str) -> None:
        """Gives a dead worker's requests to its siblings now; without this they would wait for the lease."""
        from common.connection import TRANSPORT_ERRORS, explain
        from common.transport import WorkerTransport

        transport = WorkerTransport(self.redis_url, Keys(self.checkpoint.fingerprint, self.settings.shard), worker)
        try:
            transport.hand_over()
        except TRANSPORT_ERRORS as error:
            tell(f"its requests wait for their lease: {explain(error)}")
        finally:
            transport.close()

    @property
    def reachable_at(self) -> tuple[str, int]:
        """Where this machine itself reaches the front-ends."""
        host, port = self.listener.getsockname()[:2]
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port  # noqa: S104  compared, not bound


def run(settings: UpSettings) -> int:
    """Serves until told to stop. Returns the exit code: 0 when all ended by themselves, in order."""
    from api.__main__ import listen  # imports uvicorn, which --help does not need

    checkpoint = open_checkpoint(settings.model, settings.revision)
    with ExitStack() as stack:
        listener = stack.enter_context(listen(settings))
        signals = stack.enter_context(Signals())
        service = Service(settings, checkpoint, listener)
        service.start(stack)
        code = service.until_ready(signals)
        if code is not None:
            return code
        if not signals.stops:
            print(welcome(service), flush=True)
            keep_alive([child for group in reversed(service.groups) for child in group], signals)
        listener.close()  # the front-ends hold it too, and go on accepting until their notice is over
        grace_s = settings.drain_notice_s + settings.drain_s + _BEYOND_DRAIN_S
        return 0 if stop_in_order(service.groups, signals, grace_s) else 1


def welcome(service: Service) -> str:
    """What a newcomer sees: the address, and a command that works as pasted."""
    host, port = service.reachable_at
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    body = f'{{"texts": ["床前明月光，疑是地{service.checkpoint.mask_token}霜。"]}}'
    proxied = {"http_proxy", "all_proxy", "ALL_PROXY"} & os.environ.keys()  # curl would ask the proxy for this machine
    proxy = "--noproxy '*' " if proxied else ""
    key = "-H 'authorization: Bearer KEY' " if service.settings.api_keys or service.settings.api_keys_file else ""
    lines = [
        f"fillmask serves {service.checkpoint.title} at {address}",
        f"Documentation: {address}/docs",
        *([f"Redis: {service.redis.binary.kind} at {service.redis.url}"] if service.redis else []),
        "Try it:",
        f"  curl -s {proxy}{address}/v1/fill-mask {key}-H 'content-type: application/json' -d {shlex.quote(body)}",
        "Ctrl-C stops it.",
    ]
    return "\n".join(lines)


def _start(server: RedisServer) -> Process:
    server.start()
    assert server.process  # noqa: S101  start has just set it
    return server.process


def _died_early(child: Child, code: int) -> int:
    """A wrong setting or model has been told by the child itself, in one line; anything else is told here."""
    if code != STARTUP_ERROR:
        tell(f"{child.title} {how_it_ended(code)} before the service was ready")
    return code if code == STARTUP_ERROR else 1


def main(arguments: list[str]) -> int:
    for name in _SET_FOR_EACH_CHILD:  # another `fillmask up` may have told them this process's own parent
        os.environ.pop(f"FILLMASK_{name.upper()}", None)
    settings = parse(UpSettings, arguments, "fillmask up", without=_SET_FOR_EACH_CHILD)
    try:
        return run(settings)
    except StartupError as error:
        return refuse("fillmask up", error)
