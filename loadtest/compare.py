"""`make compare`: the tutorials' table. The same load, on the same machine, in one run, on what they build and on this service.

    naive     FastAPI + transformers' pipeline, one request at a time
    batched   the same with batching in the process: 15 ms, 16 at once
    fillmask  `fillmask up` with each CPU engine that is installed, and with int8

Models: the demo model, whose answers are checked, and bert-base's shape with random weights, where only speed counts. Each server
is started alone, warmed up, and asked by 100 and by 64 clients in a closed loop. The ratios count, not the absolute figures:
they are this machine's, the client's CPU included. Writes compare.md and compare.json.
"""

import argparse
import asyncio
import itertools
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from loadtest import base_shape
from loadtest.closed_loop import Check, Load, Outcome, closed_loop
from loadtest.record import write_results
from loadtest.servers import INT8, Server, by_hand, engines, fillmask, with_int8
from loadtest.stack import DEMO, cpu_s, peak_bytes
from loadtest.texts import known, of_length

Start = Callable[[int], AbstractContextManager[Server]]
"""Starts a server at a port."""

RESULTS = Path(__file__).with_name("results")
PATH = "/predict"
WARM_UP_S = 3.0
COLUMNS = (
    "requests/s",
    "x naive",
    "mean ms",
    "p50 ms",
    "p99 ms",
    "naive's p99 / p99",
    "CPU ms a request",
    "device busy %",
    "peak MiB",
    "wrong",
)
PORTS_APART = 20
"""A stack's workers serve their metrics at the ports above its own."""


class Row(NamedTuple):
    """CPU and memory of all the server's processes; `busy_percent` of the time in which a model was running, added up."""

    model: str
    name: str
    users: int
    requests_s: float
    mean_ms: float
    p50_ms: float
    p99_ms: float
    peak_mib: int
    cpu_ms: float
    busy_percent: float
    wrong: int


class Work(NamedTuple):
    """What is asked of a model, and what counts as an answer."""

    title: str
    bodies: Sequence[bytes]
    check: Check


def demo_work() -> Work:
    """Sentences of 7 to 20 characters; a word that is not the model's is wrong, whoever gives it."""
    words = {json.dumps({"text": gap.text}).encode(): gap.word for gap in known().short}

    def check(asked: bytes, status: int, answer: bytes) -> bool:
        return status == 200 and json.loads(answer)["results"][0]["word"] == words[asked]

    return Work("demo-zh", _shuffled(list(words)), check)


def base_work() -> Work:
    """Texts of 8 to 40 characters, evenly."""
    chance = random.Random(2026)
    texts = [of_length(known(), 8, 40, chance) for _ in range(512)]
    bodies = [json.dumps({"text": text}).encode() for text in texts]
    return Work("bert-base shape, random weights", _shuffled(bodies), lambda _, status, __: status == 200)


def _shuffled(bodies: list[bytes]) -> list[bytes]:
    random.Random(2026).shuffle(bodies)
    return bodies


def measure(name: str, server: Server, work: Work, users: int, seconds: float) -> Row:
    def load(duration_s: float) -> Outcome:
        closed = Load(server.port, PATH, itertools.cycle(work.bodies), users, duration_s)
        return asyncio.run(closed_loop(closed, work.check))

    load(min(WARM_UP_S, seconds))
    used_s, busy_s = sum(cpu_s(server.parts).values()), server.busy_s()
    one = load(seconds)
    used_s, busy_s = sum(cpu_s(server.parts).values()) - used_s, server.busy_s() - busy_s
    print(f"{work.title}, {name}, {users} users: {one.per_second:.0f}/s", file=sys.stderr)
    return Row(
        work.title,
        name,
        users,
        round(one.per_second, 1),
        round(sum(one.latencies_s) / one.answered * 1000, 1),
        round(one.percentile_ms(50), 1),
        round(one.percentile_ms(99), 1),
        sum(peak_bytes(server.parts).values()) >> 20,
        round(used_s / one.answered * 1000, 3),
        round(100 * busy_s / one.duration_s, 1),
        one.wrong + one.lost,
    )


def servers(model: Path, folder: Path, asked: argparse.Namespace) -> Iterator[tuple[str, Start]]:
    """Name, and how to start it. `folder` is where an int8 copy of the model goes: it takes minutes, so only if it is wanted."""
    yield "naive", partial(by_hand, model, ())
    yield "batched 15 ms / 16", partial(by_hand, model, ("--batched",))
    for engine in engines():
        yield f"fillmask {engine}", partial(fillmask, model, ("--engine", engine, *asked.up))
    name = f"fillmask {INT8}"
    if wanted(name, asked) and (small := with_int8(model, folder / "int8", trained=model == DEMO)):
        yield name, partial(fillmask, small, ("--engine", INT8, *asked.up))


def wanted(name: str, asked: argparse.Namespace) -> bool:
    return not asked.server or any(part in name for part in asked.server)


def compare(model: Path, work: Work, asked: argparse.Namespace) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="fillmask-compare-") as folder:
        for number, (name, start) in enumerate(servers(model, Path(folder), asked)):
            if not wanted(name, asked):
                continue
            with start(asked.port + PORTS_APART * number) as server:
                rows += [measure(name, server, work, users, asked.seconds) for users in asked.users]
    return rows


def table(rows: Sequence[Row]) -> Iterator[str]:
    """One table for each model and number of users; ratios to its first row."""
    for model, users in dict.fromkeys((row.model, row.users) for row in rows):
        one = [row for row in rows if (row.model, row.users) == (model, users)]
        yield f"### {model}, closed loop of {users}, {psutil.cpu_count()} cores"
        yield ""
        yield f"| | {' | '.join(COLUMNS)} |"
        yield "|---" * (1 + len(COLUMNS)) + "|"
        for row in one:
            yield (
                f"| {row.name} | {row.requests_s:.0f} | {row.requests_s / one[0].requests_s:.1f} | {row.mean_ms:.0f} | "
                f"{row.p50_ms:.0f} | {row.p99_ms:.0f} | {one[0].p99_ms / row.p99_ms:.1f} | {row.cpu_ms:.2f} | "
                f"{row.busy_percent:.0f} | {row.peak_mib} | {row.wrong} |"
            )
        yield ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each measurement")
    parser.add_argument(
        "--users", type=int, action="append", help="closed loop of so many; repeatable; default: 100 and 64"
    )
    parser.add_argument("--port", type=int, default=8490, help="first of a hundred free ports")
    parser.add_argument("--only", choices=("demo", "base"), help="just one of the two models")
    parser.add_argument("--server", action="append", help="just servers with this in their name; repeatable")
    parser.add_argument("--base", type=Path, help="folder of bert-base's shape, kept; default: made anew")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of compare.md and compare.json")
    parser.add_argument("up", nargs="*", help="after --: further options of `fillmask up`, as --workers 2")
    asked = parser.parse_args()
    asked.users = asked.users or [100, 64]
    rows: list[Row] = []
    if asked.only != "base":
        rows += compare(DEMO, demo_work(), asked)
    if asked.only != "demo":
        with tempfile.TemporaryDirectory(prefix="fillmask-base-") as folder:
            rows += compare(base_shape.build(asked.base or Path(folder) / "bert-base-shape"), base_work(), asked)
    told = "\n".join(table(rows))
    write_results(asked.results, "compare", told, rows)
    print(told)
    return 1 if any(row.wrong for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
