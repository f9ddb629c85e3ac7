"""The promise: an accepted request is answered, or failed explicitly, before its deadline, whatever happens to the rest.

The faults of `make drill`, and those of Redis that a supervisor cannot cause. Real processes, a real server.
"""

import asyncio
import itertools
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import redis
from proxies import Proxy
from stacks import Stack, front_end
from waiting import wait_until

from common.checkpoint import open_checkpoint
from common.keys import GROUP, Keys
from deploy.redis_server import RedisServer
from loadtest.closed_loop import Load, closed_loop
from loadtest.drill import FAULTS, Drill

OURS = "/v1/fill-mask"
BODY = {"texts": ["今天[MASK]气真好"], "top_k": 1}
DRILL = ("--engine", "drill", "--log-level", "error")


@pytest.fixture(scope="module")
def drill(bert: Path) -> Iterator[Drill]:
    with Stack(bert, *DRILL, "--workers", "2", "--api", "2") as stack:
        yield Drill(stack)


CASES = {
    "a worker killed": "b06 r03",
    "both workers killed": "b06",
    "a poisonous request": "r04",
    "Redis emptied": "r02",
}


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{CASES.get(fault, '')} {fault}".strip() for fault in FAULTS])
def test_nobody_is_lost_and_nobody_gets_anothers_answer(drill: Drill, fault: str) -> None:
    break_it, duration_s = FAULTS[fault]
    tally = drill.run(fault, break_it, duration_s)
    assert (tally.outcome.lost, tally.outcome.wrong) == (0, 0)
    assert tally.right > 100
    assert tally.right + sum(tally.failed.values()) == tally.sent
    if fault == "a poisonous request":
        assert tally.note.endswith("500 poison")
    if fault == "an engine error":
        assert tally.note.endswith("500 engine_error")


class Apart:
    """A stack whose Redis is the test's own, so that the test may break it."""

    def __init__(self, bert: Path, server: RedisServer, *options: str, url: str = "") -> None:
        self.server = server
        self.stack = Stack(bert, *DRILL, "--redis-url", url or server.url, *options)
        self.keys = Keys(open_checkpoint(str(bert)).fingerprint)

    def __enter__(self) -> "Apart":
        self.stack.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.__exit__()

    def ask(self, timeout_ms: int = 10_000) -> httpx.Response:
        return self.stack.post(OURS, BODY, **{"x-request-timeout-ms": str(timeout_ms)})

    def reason(self) -> str:
        """Why it is not ready; empty if it is. Answers within a second, whatever is broken."""
        started = time.monotonic()
        response = self.stack.http.get("/readyz")
        assert time.monotonic() - started < 1.0
        return "" if response.status_code == 200 else str(response.json()["reason"])

    def assert_recovers(self) -> None:
        wait_until(lambda: not self.reason() and self.ask().status_code == 200, within_s=5.0, what="recovery")

    def assert_unready(self, reason: str, within_s: float = 4.0) -> None:
        wait_until(lambda: reason in self.reason(), within_s=within_s, what=f"the reason {reason!r}")
        assert self.stack.http.get("/healthz").status_code == 200, "liveness does not depend on Redis"
        started = time.monotonic()
        refused = self.ask()
        assert time.monotonic() - started < 1.0, "refused at once"
        assert refused.status_code == 503
        assert refused.headers["retry-after"]


@contextmanager
def apart_from_a_supervisor(
    bert: Path, server: RedisServer, folder: Path
) -> Iterator[tuple[httpx.Client, list[psutil.Process], list[Path]]]:
    """A front-end and a worker as two plain processes: HTTP to the one, both processes, and what each logs."""
    worker_log, front_end_log = folder / "worker.log", folder / "front-end.log"
    command = [sys.executable, "-m", "worker", "--model", str(bert), "--redis-url", server.url, "--engine", "drill"]
    with (
        worker_log.open("a") as log,
        front_end(bert, server.url, "--no-access-log", log=front_end_log) as (http, front),
    ):
        worker = subprocess.Popen(command, stderr=log)
        try:
            yield http, [front, psutil.Process(worker.pid)], [front_end_log, worker_log]
        finally:
            worker.terminate()
            worker.wait(30)


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    with RedisServer(enable_debug_command="yes") as server:
        yield server


@pytest.fixture
def apart(bert: Path, own_server: RedisServer) -> Iterator[Apart]:
    with Apart(bert, own_server) as running:
        yield running


def test_r10_redis_dies_and_comes_back_empty(apart: Apart) -> None:
    apart.server.kill()
    apart.assert_unready("Redis cannot be reached")
    apart.server.start()
    apart.assert_recovers()


def test_a_worker_that_took_over_is_as_quick_as_before(bert: Path) -> None:
    """Requests that are taken over run alone; they must not leave the worker with small batches for ever."""
    options = ("--drill-batch-ms", "20", "--max-batch-requests", "16", "--workers", "2")
    with Stack(bert, *DRILL, *options) as stack:
        bodies = itertools.repeat(json.dumps(BODY).encode())

        def answered_in(duration_s: float) -> int:
            load = Load(stack.port, OURS, bodies, 64, duration_s)
            outcome = asyncio.run(closed_loop(load, lambda _, status, __: status == 200))
            assert (outcome.wrong, outcome.lost) == (0, 0)
            return outcome.answered

        before = answered_in(1.5)
        killer = threading.Timer(0.5, stack.processes("worker")[0].kill)
        killer.start()
        answered_in(1.5)
        killer.join()
        wait_until(lambda: len(stack.processes("worker")) == 2)
        assert answered_in(1.5) > 0.6 * before


def test_r02_a_redis_that_is_away_makes_no_storm_of_log_lines(bert: Path, tmp_path: Path) -> None:
    """Front-end and worker by themselves, Redis gone for three seconds and back empty: a few lines, no burning core."""
    with RedisServer() as server, apart_from_a_supervisor(bert, server, tmp_path) as (http, processes, logs):
        wait_until(lambda: http.get("/readyz").status_code == 200)
        cpu_s = [sum(process.cpu_times()[:2]) for process in processes]
        for log in logs:
            log.write_text("")
        server.kill()
        wait_until(lambda: http.get("/readyz").status_code == 503)
        gone_at = time.monotonic()
        wait_until(lambda: time.monotonic() > gone_at + 3.0)
        server.start()
        wait_until(lambda: http.post(OURS, json=BODY).status_code == 200, within_s=5.0)
        for process, before_s, log in zip(processes, cpu_s, logs, strict=True):
            assert len(log.read_text().splitlines()) <= 6, log.read_text()
            assert sum(process.cpu_times()[:2]) - before_s < 1.5


def test_r09_a_crowd_needs_no_more_connections(apart: Apart) -> None:
    load = Load(apart.stack.port, OURS, itertools.repeat(json.dumps(BODY).encode(), 2000), 1000, 30.0)
    with redis.Redis.from_url(apart.server.url) as client:
        outcome = asyncio.run(closed_loop(load, lambda _, status, __: status == 200))
        assert (outcome.answered, outcome.wrong, outcome.lost) == (2000, 0, 0)
        assert client.info("clients")["connected_clients"] <= 10


def test_r10_a_replica_takes_no_writes(apart: Apart) -> None:
    with redis.Redis.from_url(apart.server.url) as client:
        client.replicaof("127.0.0.1", "1")
        apart.assert_unready("read-only replica")
        client.replicaof("no", "one")
    apart.assert_recovers()


def test_redis_is_full(apart: Apart) -> None:
    with redis.Redis.from_url(apart.server.url) as client:
        client.config_set("maxmemory", "1")
        apart.assert_unready("out of memory")
        client.config_set("maxmemory", "0")
        apart.assert_recovers()
        assert client.xlen(apart.keys.requests) == 0


def test_r10_redis_loads_a_large_file(bert: Path) -> None:
    with (
        RedisServer(key_load_delay="1000", loading_process_events_interval_bytes="1024") as server,
        redis.Redis.from_url(server.url) as client,
        Apart(bert, server) as apart,
    ):
        pipeline = client.pipeline()
        for number in range(3000):
            pipeline.set(f"ballast:{number}", "x", ex=600)
        pipeline.execute()
        client.save()
        server.kill()
        server.start()
        apart.assert_unready("still loading")
        wait_until(lambda: not client.info("persistence")["loading"])
        apart.assert_recovers()


def test_h23_packets_vanish(bert: Path, own_server: RedisServer) -> None:
    with Proxy(own_server.port) as proxy, Apart(bert, own_server, url=proxy.url) as apart:
        proxy.black_hole = True
        apart.assert_unready("Redis does not answer")
        proxy.black_hole = False
        apart.assert_recovers()


def test_a_wrong_password_is_called_so(bert: Path) -> None:
    with RedisServer(requirepass="right") as server:
        url = f"redis://:wrong@127.0.0.1:{server.port}/0"
        with pytest.raises(SystemExit, match="2"):
            Stack(bert, *DRILL, "--redis-url", url).__enter__()


def test_r01_cancelled_requests_leave_no_answer_behind(bert: Path, own_server: RedisServer) -> None:
    """Slow Redis, clients that hang up at random times, others that look whether they get their own answer."""
    with Proxy(own_server.port) as proxy, Apart(bert, own_server, url=proxy.url) as apart:
        texts = [json.dumps({"texts": [f"第{number}个[MASK]"], "top_k": 1}).encode() for number in range(50)]
        expected = {text: _first(apart.stack.http.post(OURS, content=text, headers=_JSON).content) for text in texts}
        proxy.delay_s = 0.1
        load = Load(apart.stack.port, OURS, itertools.islice(itertools.cycle(texts), 200), 20, 60.0)

        async def both() -> Any:
            leavers = [_hang_up(apart.stack.port, texts[n % 50], after_s=0.001 * n) for n in range(200)]
            outcome, *_ = await asyncio.gather(
                closed_loop(load, lambda asked, status, answer: status == 200 and _first(answer) == expected[asked]),
                *leavers,
            )
            return outcome

        outcome = asyncio.run(both())
        assert (outcome.answered, outcome.wrong, outcome.lost) == (200, 0, 0)


def test_b04_abandoned_requests_leave_nothing_behind(bert: Path, own_server: RedisServer) -> None:
    """20,000 texts whose deadline passes while the worker is frozen: taken back before any model runs, and forgotten."""
    body = json.dumps({"texts": ["今天[MASK]气真好"] * 250, "top_k": 1}).encode()
    patient = ("--max-in-flight", "30000", "--request-timeout-ms", "2500", "--drill-batch-ms", "1")
    with Apart(bert, own_server, *patient) as apart, redis.Redis.from_url(own_server.url) as client:
        (worker,), (front_end,) = apart.stack.processes("worker"), apart.stack.processes("front-end")
        load = Load(apart.stack.port, OURS, itertools.repeat(body, 80), 80, 30.0)
        asyncio.run(closed_loop(load, lambda _, status, __: status == 200))  # once, for what memory a full house takes
        before_bytes = front_end.memory_info().rss
        worker.send_signal(signal.SIGSTOP)
        load = Load(apart.stack.port, OURS, itertools.repeat(body, 80), 80, 30.0)
        outcome = asyncio.run(closed_loop(load, lambda _, status, __: status in (503, 504)))
        assert (outcome.answered, outcome.wrong) == (80, 0)
        pending = client.xpending(apart.keys.requests, GROUP)["pending"]  # the frozen worker had these in its hands
        wait_until(lambda: client.xlen(apart.keys.requests) <= pending)
        assert _counted(apart, "fillmask_withdrawn_total") > 10_000
        worker.send_signal(signal.SIGCONT)
        wait_until(lambda: client.xpending(apart.keys.requests, GROUP)["pending"] == 0)
        assert client.xlen(apart.keys.requests) == 0
        apart.assert_recovers()
        assert apart.stack.http.get("/info").json()["in_flight"] == 0
        assert front_end.memory_info().rss - before_bytes < 20 << 20


def test_h12_callers_that_hang_up(bert: Path, own_server: RedisServer) -> None:
    """A thousand connections that close after 20 ms: what is still queued is dropped, nothing leaks, others are served."""
    with Apart(bert, own_server) as apart, redis.Redis.from_url(own_server.url) as client:
        (worker,) = apart.stack.processes("worker")
        worker.send_signal(signal.SIGSTOP)
        body = json.dumps(BODY).encode()

        async def hang_up_all() -> None:
            await asyncio.gather(*(_hang_up(apart.stack.port, body, after_s=0.02) for _ in range(1000)))

        asyncio.run(hang_up_all())
        wait_until(lambda: apart.stack.http.get("/info").json()["in_flight"] == 0, within_s=5.0)
        pending = client.xpending(apart.keys.requests, GROUP)["pending"]  # the frozen worker had these in its hands
        wait_until(lambda: client.xlen(apart.keys.requests) <= pending)
        worker.send_signal(signal.SIGCONT)
        apart.assert_recovers()
        wait_until(lambda: client.xlen(apart.keys.requests) == 0)
        assert _counted(apart, "fillmask_withdrawn_total") > 100


@pytest.mark.parametrize(
    ("fault", "options"), [(94, ("--stall-s", "0.5")), (95, ())], ids=["the device hangs", "the device is lost"]
)
def test_b08_a_worker_ends_with_its_device(bert: Path, fault: int, options: tuple[str, ...]) -> None:
    """Three workers lose their device to the same request; it is given up, and the fourth serves on."""
    with Stack(bert, *DRILL, *options) as stack:
        (before,) = stack.processes("worker")
        failed = stack.post(OURS, BODY | {"top_k": fault}, **{"x-request-timeout-ms": "30000"})
        assert (failed.status_code, failed.json()["details"]["reason"]) == (500, "poison")
        wait_until(lambda: stack.post(OURS, BODY).status_code == 200)
        assert before not in stack.processes("worker")


@pytest.mark.parametrize("part", ["front-end", "worker", "everything"])
def test_h15_sigterm_with_requests_in_flight(bert: Path, part: str) -> None:
    """200 requests under way: each is answered, and the process that was told to stop ends with 0."""
    slow = ("--drill-batch-ms", "200", "--max-batch-requests", "16")
    with Stack(bert, *DRILL, *slow, "--workers", "2") as stack:
        load = Load(stack.port, OURS, itertools.repeat(json.dumps(BODY).encode(), 200), 200, 30.0)

        async def stop_in_the_middle() -> Any:
            running = asyncio.create_task(closed_loop(load, lambda _, status, __: status == 200))
            # Another process's counter has no event to wait for.
            while stack.http.get("/info").json()["in_flight"] < 100:
                await asyncio.sleep(0.01)
            target = psutil.Process(stack.process.pid) if part == "everything" else stack.processes(part)[0]
            target.send_signal(signal.SIGTERM)
            return await running

        outcome = asyncio.run(stop_in_the_middle())
        assert (outcome.answered, outcome.wrong, outcome.lost) == (200, 0, 0)
        if part == "everything":
            assert stack.process.wait(30) == 0


def test_b15_overload_is_refused_and_what_is_accepted_is_served(bert: Path) -> None:
    """Three times what the workers can do: the queue stays bounded, refusals are quick, and capacity is not wasted."""
    slow = ("--drill-batch-ms", "100", "--max-batch-requests", "8", "--request-timeout-ms", "1000")
    capacity_per_s = 80
    with Stack(bert, *DRILL, *slow) as stack:
        statuses: list[int] = []

        def note(_: bytes, status: int, __: bytes) -> bool:
            statuses.append(status)
            return status in (200, 503)

        bodies = itertools.repeat(json.dumps(BODY).encode())
        load = Load(stack.port, OURS, bodies, 120, 6.0, least_interval_s=0.5)
        outcome = asyncio.run(closed_loop(load, note))
        assert (outcome.wrong, outcome.lost) == (0, 0)
        assert statuses.count(503) > statuses.count(200), "the excess is refused"
        assert statuses.count(200) >= 0.8 * capacity_per_s * outcome.duration_s
        wait_until(lambda: stack.http.get("/info").json()["backlog"] == 0, within_s=5.0)
        started = time.monotonic()
        assert stack.post(OURS, BODY).status_code == 200
        assert time.monotonic() - started < 1.0


_JSON = {"content-type": "application/json"}


def _counted(apart: Apart, metric: str) -> int:
    found = re.search(rf"^{metric} (\d+)", apart.stack.http.get("/metrics").text, re.MULTILINE)
    return int(found[1]) if found else 0


def _first(answer: bytes) -> Any:
    return json.loads(answer)["results"][0]["masks"][0]["candidates"][0]["token_id"]


async def _hang_up(port: int, body: bytes, after_s: float) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {OURS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await asyncio.sleep(after_s)
    writer.close()
