"""The whole service as a user starts it: `fillmask up`, real processes, on a free port."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil

from deploy.redis_server import free_port

ROOT = Path(__file__).resolve().parents[1]


class Stack:
    """A running `fillmask up`; `http` speaks to it. Use as a context manager."""

    def __init__(self, model: Path, *options: str) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "deploy.cli", "up", "--port", str(self.port), "--model", str(model), *options]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.printed: list[str] = []
        for line in self.process.stdout:  # the last line comes when it is ready; the pipe closes if it is not to be
            self.printed.append(line)
            if line.startswith("Ctrl-C"):
                break
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)

    def __enter__(self) -> "Stack":
        assert self.process.poll() is None, "fillmask up ended at once"
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self.stop()

    def stop(self) -> int:
        """Ctrl-C; returns the exit code."""
        self.process.terminate()
        code = self.process.wait(timeout=40)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return self.http.post(path, json=body, headers=headers)

    def processes(self, part: str) -> list[psutil.Process]:
        """The `api` or `worker` processes."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [child for child in children if part in child.cmdline()]
