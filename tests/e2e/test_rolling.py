"""Processes come and go under load, and nobody notices: another revision of the model, and the end of a front-end."""

import asyncio
import itertools
import json
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import psutil
import redis
from balancers import Balancer
from stacks import front_end, worker
from waiting import wait_until

from common.checkpoint import open_checkpoint
from common.keys import Keys
from deploy.redis_server import RedisServer
from loadtest.closed_loop import Load, Outcome, closed_loop

OURS = "/v1/fill-mask"
BODY = json.dumps({"texts": ["今天[MASK]气真好"], "top_k": 1}).encode()
QUIET = ("--log-level", "error")


class Callers:
    """A closed loop against a port from a thread, until it is told to end; notes which revision answered, in order."""

    def __init__(self, port: int) -> None:
        self.revisions: list[str] = []
        self._enough = threading.Event()
        bodies = itertools.takewhile(lambda _: not self._enough.is_set(), itertools.repeat(BODY))
        self._load = Load(port, OURS, bodies, connections=12, duration_s=60.0)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> Outcome:
        self._enough.set()
        self._thread.join(30)
        return self.outcome

    def _run(self) -> None:
        self.outcome = asyncio.run(closed_loop(self._load, self._check))

    def _check(self, _: bytes, status: int, answer: bytes) -> bool:
        if status == 200:
            self.revisions.append(json.loads(answer)["revision"])
        return status == 200


def test_another_revision_takes_over_under_load(bert: Path, redis_server: RedisServer) -> None:
    """The steps of deploy/README.md, section Roll: new workers and front-ends beside the old, the balancer follows /readyz."""
    url = redis_server.url
    one, two = ("--revision", "one"), ("--revision", "two")
    with ExitStack() as processes, Balancer() as balancer:
        old_worker = processes.enter_context(worker(bert, url, *one))
        old_http, old_front_end = processes.enter_context(front_end(bert, url, *QUIET, *one))
        balancer.add(old_http.base_url.port or 0)
        wait_until(lambda: balancer.ready, what="the old front-end")
        callers = Callers(balancer.port)
        wait_until(lambda: callers.revisions, what="the load")

        new_http, _ = processes.enter_context(front_end(bert, url, *QUIET, *two))
        balancer.add(new_http.base_url.port or 0)
        wait_until(lambda: "no worker serves this model" in new_http.get("/readyz").text)
        assert balancer.ready == {old_http.base_url.port}, "its worker is not there yet"
        processes.enter_context(worker(bert, url, *two))
        wait_until(lambda: len(balancer.ready) == 2, what="the new front-end")
        wait_until(lambda: "two" in callers.revisions, what="answers of both")

        old_front_end.terminate()
        assert old_front_end.wait(30) == 0
        old_worker.terminate()
        assert old_worker.wait(30) == 0
        answered = len(callers.revisions)
        wait_until(lambda: len(callers.revisions) > answered + 100, what="answers after the roll")
        outcome = callers.end()
        assert (outcome.wrong, outcome.lost, balancer.failed) == (0, 0, 0)
        assert outcome.answered == len(callers.revisions) > 200
        assert set(callers.revisions[answered:]) == {"two"}
        assert callers.revisions[0] == "one"
        with redis.Redis.from_url(url) as client:
            assert client.xlen(Keys(open_checkpoint(str(bert), "one").fingerprint).requests) == 0


class Crowd:
    """Callers without a balancer, who make a new connection for each request. `ends` counts what became of them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.ends: Counter[str] = Counter()

    async def stops(self, process: psutil.Process) -> None:
        """Asks until nobody can be connected to any more; the process is told to end in the middle."""
        callers = [asyncio.create_task(self._keep_asking()) for _ in range(64)]
        while self.ends["200"] < 100:
            await asyncio.sleep(0.01)  # counted by the other tasks: there is nothing to wait for
        process.terminate()
        await asyncio.gather(*callers)

    async def _keep_asking(self) -> None:
        end = ""
        while end != "not connected":
            end = await self._ask()
            self.ends[end] += 1

    async def _ask(self) -> str:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return "not connected"
        head = f"POST {OURS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(BODY)}\r\n"
        writer.write(f"{head}connection: close\r\n\r\n".encode() + BODY)
        try:
            return (await reader.read())[9:12].decode() or "closed unanswered"
        except OSError:
            return "reset"
        finally:
            writer.close()


def test_who_was_let_in_before_a_front_end_ended_is_answered(bert: Path, redis_server: RedisServer) -> None:
    """Refused when it is over, and never reset with a request: that was the end of up to one in two of a crowd."""
    brief = ("--drain-notice-s", "0.1")
    with (
        worker(bert, redis_server.url),
        front_end(bert, redis_server.url, *QUIET, *brief) as (http, process),
    ):
        wait_until(lambda: http.get("/readyz").status_code == 200)
        crowd = Crowd(http.base_url.port or 0)
        asyncio.run(crowd.stops(process))
        assert process.wait(30) == 0
        assert set(crowd.ends) == {"200", "not connected"}
