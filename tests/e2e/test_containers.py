"""Front-end and worker as an image runs them: process 1 of a namespace, nothing writable, no capabilities. No container engine.

Needs Linux, root and util-linux; anywhere else it is skipped. The id is that of the field case.
"""

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from waiting import wait_until

import loadtest.stack
from deploy.redis_server import RedisServer, free_port
from loadtest.closed_loop import Load, Outcome, closed_loop

OURS = "/v1/fill-mask"
BODY = json.dumps({"texts": ["今天[MASK]气真好"], "top_k": 1}).encode()
GRACE_S = 30
"""compose.yaml's stop_grace_period of a front-end; then comes SIGKILL, and exit code 137."""

NAMESPACE = ("unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child")
READ_ONLY = 'mount -o remount,bind,ro / && exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all "$@"'
IN_A_CONTAINER = (*NAMESPACE, "sh", "-c", READ_ONLY, "sh")


@contextmanager
def contained(log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """`fillmask COMMAND`, as an image's entry point has it. The process is unshare's; what it started is process 1."""
    whole = [*IN_A_CONTAINER, sys.executable, "-m", "deploy.cli", *command, "--log-format", "json"]
    with log.open("wb") as output:
        outside = subprocess.Popen(whole, stderr=output)
    try:
        yield outside
    finally:
        outside.kill()
        outside.wait()


def stop(outside: subprocess.Popen[bytes]) -> int:
    """What `docker stop` does: SIGTERM to process 1. Returns its exit code."""
    (process_1,) = psutil.Process(outside.pid).children()
    process_1.terminate()
    return outside.wait(GRACE_S)


@pytest.fixture
def container() -> None:
    tried = subprocess.run(
        [*IN_A_CONTAINER, "sh", "-c", "! touch /is-writable"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"namespaces are not to be had here: {tried.stderr}")


@pytest.mark.usefixtures("container")
def test_h16_process_1_drains(bert: Path, redis_server: RedisServer, tmp_path: Path) -> None:
    """Under load, first the front-end, then the worker: exit code 0 within the grace, and each says in its log what it did."""
    common = ("--model", str(bert), "--redis-url", redis_server.url)
    port, logs = free_port(), [tmp_path / "front-end.log", tmp_path / "worker.log"]
    slow = ("--engine", "drill", "--drill-batch-ms", "50", "--max-batch-requests", "4")
    with (
        contained(logs[0], "api", *common, "--port", str(port)) as front_end,
        contained(logs[1], "worker", *common, *slow) as worker,
    ):
        wait_until(lambda: loadtest.stack.answers(port, "/readyz"), within_s=20.0)

        async def stop_in_the_middle() -> tuple[Outcome, int]:
            load = Load(port, OURS, itertools.repeat(BODY, 40), connections=40, duration_s=30.0)
            running = asyncio.create_task(closed_loop(load, lambda _, status, __: status == 200))
            while b'"status":200' not in logs[0].read_bytes():
                await asyncio.sleep(0.01)  # another process's log: there is nothing to wait for
            code = await asyncio.to_thread(stop, front_end)
            return await running, code

        outcome, code = asyncio.run(stop_in_the_middle())
        assert (outcome.answered, outcome.wrong, outcome.lost, code) == (40, 0, 0, 0)
        assert stop(worker) == 0
    for log, drained in zip(logs, ("draining: not ready any more", "drained: what was begun"), strict=True):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert any(line["message"].startswith(drained) for line in lines)
