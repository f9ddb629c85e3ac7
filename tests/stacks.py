"""The whole service as a user starts it: `fillmask up`, real processes, on a free port."""

from pathlib import Path
from typing import Any

import httpx
import psutil

import loadtest.stack
from deploy.redis_server import free_port


class Stack(loadtest.stack.Stack):
    """A running `fillmask up`; `http` speaks to it. Use as a context manager."""

    def __init__(self, model: Path, *options: str) -> None:
        super().__init__(free_port(), "--model", str(model), *options)
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)

    def __enter__(self) -> "Stack":
        super().__enter__()
        return self

    def stop(self) -> int:
        self.http.close()
        return super().stop()

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return self.http.post(path, json=body, headers=headers)

    def processes(self, part: str) -> list[psutil.Process]:
        return self.parts()[part]
