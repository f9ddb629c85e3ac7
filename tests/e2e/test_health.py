"""Health that tells the truth: alive whatever happens, ready only when a request would be served, and why not.

With Redis away, full, frozen or loading: test_faults.py.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from stacks import Stack, front_end, worker
from waiting import wait_until

from deploy.redis_server import RedisServer, free_port

OURS = "/v1/fill-mask"
BODY = {"texts": ["今天[MASK]气真好"], "top_k": 1}


def assert_unready(http: httpx.Client, reason: str) -> None:
    wait_until(lambda: reason in http.get("/readyz").text, what=f"the reason {reason!r}")
    assert http.get("/readyz").status_code == 503
    assert http.get("/healthz").status_code == 200


@contextmanager
def a_worker(*options: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", "deploy.cli", "worker", "--log-level", "error", *options])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_h23_no_worker_then_one_that_loads_and_is_stopped(
    bert: Path, redis_server: RedisServer, tmp_path: Path
) -> None:
    """This worker has to export its model first, which takes some seconds: told to stop meanwhile, it does not finish that."""
    options = ("--model", str(bert), "--redis-url", redis_server.url, "--cache-dir", str(tmp_path), "--engine", "onnx")
    with front_end(bert, redis_server.url) as (http, _):
        assert_unready(http, "no worker serves this model")
        with a_worker(*options) as loading:
            exporter = wait_until(lambda: psutil.Process(loading.pid).children(), what="its child that exports")[0]
            assert_unready(http, "no worker is ready: loading")
            refused = http.post(OURS, json=BODY)
            assert (refused.status_code, refused.json()["error_type"]) == (503, "no_worker")
            loading.terminate()
            assert loading.wait(10) == 0
            wait_until(lambda: not exporter.is_running() or exporter.status() == psutil.STATUS_ZOMBIE)
        assert_unready(http, "no worker serves this model")


def test_a_worker_is_stopped_while_it_fetches_its_model(tmp_path: Path) -> None:
    """From a hub that says nothing. Metrics are served by then, and nothing has to be drained."""
    with socket.create_server(("127.0.0.1", 0)) as hub:
        port = free_port()
        command = [sys.executable, "-m", "worker", "--model", "owner/name", "--metrics-port", str(port)]
        variables = {"HF_ENDPOINT": f"http://127.0.0.1:{hub.getsockname()[1]}", "HF_HOME": str(tmp_path)}
        process = subprocess.Popen(command, env={**os.environ, **variables, "HF_HUB_OFFLINE": "0"})
        try:
            hub.settimeout(20)
            connection, _ = hub.accept()
            with connection:
                assert "fillmask_worker_ready 0.0" in httpx.get(f"http://127.0.0.1:{port}/metrics").text
                process.terminate()
                assert process.wait(5) == 0
        finally:
            process.kill()
            process.wait()


def test_a_worker_that_never_found_redis_did_not_drain(bert: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    with worker(bert, nowhere, "--log-level", "info", log=log) as process:
        wait_until(lambda: "waiting for it" in log.read_text())
        process.terminate()
        assert process.wait(5) == 0
    assert "drained" not in log.read_text()


def test_h23_a_worker_that_hangs(bert: Path) -> None:
    """It gives no sign of life any more: within its heartbeat's three seconds it counts as gone, and it is back by itself."""
    with Stack(bert, "--engine", "echo") as stack:
        (worker,) = stack.processes("worker")
        worker.send_signal(signal.SIGSTOP)
        assert_unready(stack.http, "no worker serves this model")
        worker.send_signal(signal.SIGCONT)
        wait_until(lambda: stack.http.get("/readyz").status_code == 200)
        assert stack.post(OURS, BODY).status_code == 200


@pytest.mark.parametrize("part", ["front-end", "worker"])
def test_readiness_goes_first_in_a_drain(bert: Path, redis_server: RedisServer, part: str) -> None:
    """The front-end says so itself while it still accepts; of a worker the front-end says it."""
    with (
        front_end(bert, redis_server.url, "--drain-notice-s", "2") as (http, process),
        a_worker(
            "--model", str(bert), "--redis-url", redis_server.url, "--engine", "drill", "--drill-batch-ms", "700"
        ) as worker,
    ):
        wait_until(lambda: http.get("/readyz").status_code == 200)
        if part == "front-end":
            process.terminate()
            wait_until(lambda: "shutting down" in http.get("/readyz").text)
            assert http.post(OURS, json=BODY).status_code == 200
        else:
            worker.terminate()
            wait_until(lambda: http.get("/readyz").status_code == 503)
            assert worker.wait(10) == 0
