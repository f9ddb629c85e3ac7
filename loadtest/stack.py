"""The whole service as a user starts it, `fillmask up`, for as long as a benchmark or a drill needs it."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil
import redis

DEMO = Path(__file__).resolve().parent.parent / "models" / "demo-zh"
READY_WITHIN_S = 60.0
STOPPED_WITHIN_S = 40.0


class Stack:
    """A running `fillmask up` on 127.0.0.1. Use as a context manager; its printed lines are in `printed`."""

    def __init__(self, port: int, *options: str) -> None:
        self.port = port
        command = [sys.executable, "-m", "deploy.cli", "up", "--port", str(port), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 our own command
        self.printed: list[str] = []

    def __enter__(self) -> "Stack":
        assert self.process.stdout is not None  # noqa: S101 asked for above
        for line in self.process.stdout:  # the last line comes when it is ready; the pipe closes if it is not to be
            self.printed.append(line)
            if line.startswith("Ctrl-C"):
                return self
        self.process.stdout.close()
        raise SystemExit(f"fillmask up did not come up: exit code {self.process.wait(STOPPED_WITHIN_S)}")

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.terminate()
        code = self.process.wait(STOPPED_WITHIN_S)
        assert self.process.stdout is not None  # noqa: S101 asked for above
        self.process.stdout.close()
        return code

    def parts(self) -> dict[str, list[psutil.Process]]:
        """Its processes now, by part: front-end, worker, Redis."""
        parts: dict[str, list[psutil.Process]] = {"front-end": [], "worker": [], "Redis": []}
        for child in psutil.Process(self.process.pid).children(recursive=True):
            words = child.cmdline()
            parts["front-end" if "api" in words else "worker" if "worker" in words else "Redis"].append(child)
        return parts

    def redis(self) -> redis.Redis:
        """A client of the server that the stack brought."""
        (server,) = self.parts()["Redis"]
        return redis.Redis(port=next(c.laddr.port for c in server.net_connections("tcp") if c.status == "LISTEN"))


Parts = Mapping[str, Iterable[psutil.Process]]


def cpu_s(parts: Parts) -> dict[str, float]:
    """CPU seconds that each part has used since it was started, user and system."""
    return {part: sum(sum(process.cpu_times()[:2]) for process in processes) for part, processes in parts.items()}


def peak_bytes(parts: Parts) -> dict[str, int]:
    """The most memory that each part's processes had resident, added up. Linux only."""
    return {part: sum(_peak_bytes(process) for process in processes) for part, processes in parts.items()}


def _peak_bytes(process: psutil.Process) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def get(port: int, path: str) -> dict[str, Any]:
    """The JSON object that a GET answers with."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    told: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return told


def answers(port: int, path: str, body: str | bytes | None = None) -> bool:
    """Whether a GET, or a POST if there is a body, is answered with 200 within a second."""
    connection = HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("POST" if body else "GET", path, body, {"content-type": "application/json"})
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def wait_for(condition: Callable[[], bool], most_s: float = 30.0) -> None:
    """Returns when the condition holds; ends the program if it does not in time."""
    give_up_at = time.monotonic() + most_s
    while not condition():
        if time.monotonic() > give_up_at:
            raise SystemExit("what was waited for did not happen")
        time.sleep(0.05)
