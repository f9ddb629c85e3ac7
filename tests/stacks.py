"""The whole service as a user starts it: `fillmask up`, real processes, on a free port."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
from waiting import wait_until

import loadtest.stack
from deploy.redis_server import free_port

BEGINS_TO_STOP_WITHIN_S = 0.1


class Stack(loadtest.stack.Stack):
    """A running `fillmask up`; `http` speaks to it. Use as a context manager."""

    def __init__(self, model: Path, *options: str) -> None:
        super().__init__(free_port(), "--model", str(model), *options)
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)

    def __enter__(self) -> "Stack":
        super().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """At once, as a second signal asks for: tests of how it stops call `stop`, and all others would wait for the drain."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(BEGINS_TO_STOP_WITHIN_S)
        self.stop()

    def stop(self) -> int:
        self.http.close()
        return super().stop()

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return self.http.post(path, json=body, headers=headers)

    def processes(self, part: str) -> list[psutil.Process]:
        return self.parts()[part]


@contextmanager
def front_end(
    model: Path, redis_url: str, *options: str, log: Path = Path(os.devnull)
) -> Iterator[tuple[httpx.Client, psutil.Process]]:
    """A front-end by itself, `python -m api`, once it answers."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "api",
        "--model",
        str(model),
        "--redis-url",
        redis_url,
        "--port",
        str(port),
        *options,
    ]
    with log.open("a") as output:
        process = subprocess.Popen(command, stderr=output)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
            wait_until(lambda: loadtest.stack.answers(port, "/healthz"))
            yield http, psutil.Process(process.pid)
    finally:
        process.kill()  # a test of how it stops has stopped it by now
        process.wait()


@contextmanager
def worker(
    model: Path, redis_url: str, *options: str, engine: str = "drill", log: Path = Path(os.devnull)
) -> Iterator[psutil.Process]:
    """A worker by itself, `python -m worker`; not waited for, as a front-end's /readyz tells when it serves."""
    command = [sys.executable, "-m", "worker", "--model", str(model), "--redis-url", redis_url, "--engine", engine]
    with log.open("a") as output:
        process = subprocess.Popen([*command, *options], stderr=output)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.kill()  # a test of how it stops has stopped it by now
        process.wait()
