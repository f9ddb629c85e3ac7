"""`make drill`: starts the service, sends a steady load of texts whose answers are known, breaks things, and counts.

    sent      requests that were sent
    right     answered with the answer that the same text got before anything was broken
    failed    answered with an explicit error (503, 504, 500)
    wrong     answered with something else: nobody may ever get another one's answer
    lost      not answered at all
    twice     replies that came after another reply to the same request; dropped, and counted by the front-ends

Exit code 1 if anything was lost or wrong.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any, NamedTuple

import redis

from loadtest.closed_loop import Load, Outcome, closed_loop
from loadtest.stack import Stack, answers, get, wait_for

PATH = "/v1/fill-mask"
OPTIONS = ("--engine", "drill", "--workers", "2", "--api", "2", "--log-level", "error")


class Pace(NamedTuple):
    """So many connections, each asking at most once in that many seconds."""

    connections: int
    least_interval_s: float


STEADY = Pace(24, 0.05)
CROWD = Pace(240, 0.5)
"""Both about 480 requests a second; the crowd goes on asking while many of it wait for their answers."""

OVERLOADED = ("--drill-batch-ms", "100", "--max-batch-requests", "8", "--request-timeout-ms", "1000")
OVERLOADED_CAPACITY_S = 2 * 8 / 0.1
"""Requests a second that two such workers can do: a third of what the crowd asks for."""

TEXTS = 500
KILLS_WORKER, FAILS_BATCH = 91, 92
"""What the drill engine does when a request asks for so many candidates."""


@dataclass
class Tally:
    name: str
    right: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    outcome: Outcome = field(default_factory=Outcome)
    twice: int = 0
    note: str = ""

    @property
    def sent(self) -> int:
        return self.outcome.answered + self.outcome.lost


class Drill:
    """One running stack, the answers it gives when all is well, and the faults."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self._texts = [json.dumps({"texts": [f"第{number}个[MASK]"], "top_k": 1}).encode() for number in range(TEXTS)]
        self._expected = {text: _ask(stack.port, text) for text in self._texts}

    def run(self, name: str, fault: Callable[["Drill"], str], duration_s: float, pace: Pace = STEADY) -> Tally:
        """The load for that long, with the fault in the middle of it."""
        tally = Tally(name)
        bodies = itertools.cycle(self._texts)
        load = Load(self.stack.port, PATH, bodies, pace.connections, duration_s, pace.least_interval_s)
        late = self._late_replies()

        def check(asked: bytes, status: int, answer: bytes) -> bool:
            if status >= 500:
                tally.failed[f"{status} {json.loads(answer)['error_type']}"] += 1
                return True
            right = status == 200 and _first_token(answer) == self._expected[asked]
            tally.right += right
            return right

        def drive() -> None:
            tally.outcome = asyncio.run(closed_loop(load, check))

        driver = threading.Thread(target=drive)
        driver.start()
        time.sleep(min(1.0, duration_s / 4))
        tally.note = fault(self)
        driver.join()
        wait_for(lambda: answers(self.stack.port, "/readyz"))
        tally.twice = max(0, self._late_replies() - late)
        return tally

    def send_signal(self, part: str, number: signal.Signals, count: int = 1) -> list[int]:
        """To the first `count` processes of a part; returns their ids."""
        pids = [process.pid for process in self.stack.parts()[part][:count]]
        for pid in pids:
            os.kill(pid, number)
        return pids

    def kill_in_mid_batch(self) -> None:
        """kill -9 of a worker that has requests in its hands: it is frozen, looked at, and let go on if it has none."""
        with self.stack.redis() as client:
            (requests,) = client.scan_iter("fillmask:*:requests", _type="stream")

            def caught() -> bool:
                for worker in self.stack.parts()["worker"]:
                    worker.suspend()
                    name = worker.environ()["FILLMASK_NAME"]
                    held = {consumer["name"].decode(): consumer["pending"] for consumer in _consumers(client, requests)}
                    if held.get(name):
                        worker.kill()
                        return True
                    worker.resume()
                return False

            wait_for(caught)

    def _late_replies(self) -> int:
        connection = HTTPConnection("127.0.0.1", self.stack.port, timeout=5)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith("fillmask_late_replies_total"))


def kill_a_worker(drill: Drill) -> str:
    drill.kill_in_mid_batch()
    return "kill -9 of one of two, in mid-batch"


def kill_a_worker_unseen(drill: Drill) -> str:
    """Its sibling is on its own: nobody hands over what the dead one had, and nobody starts another."""
    supervisor = drill.stack.process
    supervisor.send_signal(signal.SIGSTOP)
    drill.kill_in_mid_batch()
    time.sleep(3.0)  # twice the lease
    supervisor.send_signal(signal.SIGCONT)
    return "the same while the supervisor is frozen: the lease decides"


def kill_both_workers(drill: Drill) -> str:
    drill.send_signal("worker", signal.SIGKILL, 2)
    return "kill -9 of both"


def freeze_a_worker(drill: Drill) -> str:
    (pid,) = drill.send_signal("worker", signal.SIGSTOP)
    time.sleep(5.0)
    os.kill(pid, signal.SIGCONT)
    return "SIGSTOP for 5 s"


def poison(drill: Drill) -> str:
    return f"its sender gets {_status(drill, KILLS_WORKER)}"


def engine_error(drill: Drill) -> str:
    return f"its sender gets {_status(drill, FAILS_BATCH)}"


def kill_redis(drill: Drill) -> str:
    drill.send_signal("Redis", signal.SIGKILL)
    return "back empty, by the supervisor"


def flush(drill: Drill) -> str:
    with drill.stack.redis() as client:
        client.flushall()
    return "FLUSHALL"


def kill_connections(drill: Drill) -> str:
    with drill.stack.redis() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal")
    return "CLIENT KILL TYPE normal"


def stop_a_worker(drill: Drill) -> str:
    drill.send_signal("worker", signal.SIGTERM)
    return "SIGTERM: it drains and is replaced"


def stop_a_front_end(drill: Drill) -> str:
    drill.send_signal("front-end", signal.SIGTERM)
    return "SIGTERM: it drains and is replaced"


FAULTS: dict[str, tuple[Callable[[Drill], str], float]] = {
    "a worker killed": (kill_a_worker, 5.0),
    "no supervisor": (kill_a_worker_unseen, 6.0),
    "both workers killed": (kill_both_workers, 6.0),
    "a worker frozen": (freeze_a_worker, 9.0),
    "a poisonous request": (poison, 8.0),
    "an engine error": (engine_error, 4.0),
    "Redis killed": (kill_redis, 8.0),
    "Redis emptied": (flush, 5.0),
    "connections killed": (kill_connections, 5.0),
    "a worker stopped": (stop_a_worker, 5.0),
    "a front-end stopped": (stop_a_front_end, 5.0),
}


def _consumers(client: redis.Redis, stream: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.xinfo_consumers(stream, "workers")
    return found


def _ask(port: int, body: bytes) -> int:
    """The first token of the answer; another front-end than the one that was asked first may need a moment to be ready."""
    wait_for(lambda: answers(port, PATH, body))
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", PATH, body, {"content-type": "application/json"})
    answer = connection.getresponse().read()
    connection.close()
    return _first_token(answer)


def _status(drill: Drill, top_k: int) -> str:
    connection = HTTPConnection("127.0.0.1", drill.stack.port, timeout=15)
    body = json.dumps({"texts": ["毒[MASK]"], "top_k": top_k})
    connection.request("POST", PATH, body, {"content-type": "application/json"})
    response = connection.getresponse()
    told = json.loads(response.read())
    connection.close()
    return f"{response.status} {told.get('details', {}).get('reason', '')}".strip()


def _first_token(answer: bytes) -> int:
    token: int = json.loads(answer)["results"][0]["masks"][0]["candidates"][0]["token_id"]
    return token


def overload(port: int, duration_s: float) -> Tally:
    """Three times what the workers can do, for that long."""
    with Stack(port, *OPTIONS, *OVERLOADED) as stack:
        tally = Drill(stack).run("overload", lambda _: "", duration_s, CROWD)
        ended = time.monotonic()
        wait_for(lambda: get(port, "/info")["backlog"] == 0)
        normal_s = time.monotonic() - ended
    goodput = tally.right / tally.outcome.duration_s / OVERLOADED_CAPACITY_S
    tally.note = f"goodput {goodput:.0%} of capacity under a deadline of 1 s, queue empty after {normal_s:.1f} s"
    return tally


def rows(tallies: list[Tally]) -> Iterator[str]:
    columns = f"{'sent':>7}{'right':>7}{'failed':>8}{'wrong':>7}{'lost':>6}{'twice':>7}{'p50 ms':>8}{'worst ms':>10}"
    yield f"{'fault':22}{columns}  note"
    for tally in tallies:
        outcome = tally.outcome
        worst_ms = max(outcome.latencies_s) * 1000
        failed = ", ".join(f"{count} x {kind}" for kind, count in tally.failed.items())
        yield (
            f"{tally.name:22}{tally.sent:7}{tally.right:7}{sum(tally.failed.values()):8}{outcome.wrong:7}{outcome.lost:6}"
            f"{tally.twice:7}{outcome.percentile_ms(50):8.1f}{worst_ms:10.0f}  {tally.note}{f' ({failed})' if failed else ''}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8290, help="a free port")
    parser.add_argument("--only", choices=FAULTS, action="append", help="just this fault; may be given several times")
    parser.add_argument("--overload-s", type=float, default=60.0, help="seconds of three times the capacity; 0: none")
    asked = parser.parse_args()
    tallies = []
    with Stack(asked.port, *OPTIONS) as stack:
        drill = Drill(stack)
        for name in asked.only or FAULTS:
            fault, duration_s = FAULTS[name]
            tallies.append(drill.run(name, fault, duration_s))
            print(f"{name}: done", file=sys.stderr)
    if asked.overload_s:
        tallies.append(overload(asked.port, asked.overload_s))
    print("\n".join(rows(tallies)))
    return 1 if any(tally.outcome.wrong or tally.outcome.lost for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
