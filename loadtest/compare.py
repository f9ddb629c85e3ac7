"""`make compare`: the tutorials' table. The same load, on the same machine, in one run, on what they build and on this service.

    naive     FastAPI + transformers' pipeline, one request at a time
    batched   the same with batching in the process: 15 ms, 16 at once
    fillmask  one front-end, one worker, each CPU engine that is installed

The ratios count; the absolute figures are this machine's. Load: sentences of loadtest/sentences.txt with one character masked.
"""

import argparse
import asyncio
import itertools
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import psutil

from loadtest import base_shape
from loadtest.closed_loop import Load, Outcome, closed_loop
from loadtest.stack import Stack, answers, wait_for

SENTENCES = Path(__file__).with_name("sentences.txt")
PATH = "/predict"


class Row(NamedTuple):
    name: str
    outcome: Outcome
    peak_bytes: int
    cpu_s: float


def masked_sentences() -> list[bytes]:
    """Each sentence with one of its characters masked, as request bodies, in a fixed random order."""
    chance = random.Random(2026)
    bodies = []
    for line in SENTENCES.read_text(encoding="utf-8").splitlines():
        gap = chance.choice([index for index, character in enumerate(line) if "\u4e00" <= character <= "\u9fff"])
        bodies.append(json.dumps({"text": f"{line[:gap]}[MASK]{line[gap + 1 :]}"}).encode())
    chance.shuffle(bodies)
    return bodies


def measure(name: str, port: int, asked: argparse.Namespace, processes: list[psutil.Process]) -> Row:
    bodies = masked_sentences()

    def load(duration_s: float) -> Outcome:
        wanted = Load(port, PATH, itertools.cycle(bodies), asked.users, duration_s)
        return asyncio.run(closed_loop(wanted, lambda _, status, __: status == 200))

    load(min(2.0, asked.seconds))
    before_s = sum(sum(process.cpu_times()[:2]) for process in processes)
    outcome = load(asked.seconds)
    cpu_s = sum(sum(process.cpu_times()[:2]) for process in processes) - before_s
    print(f"{name}: {outcome.per_second:.0f}/s", file=sys.stderr)
    return Row(name, outcome, sum(_peak_bytes(process) for process in processes), cpu_s)


def _peak_bytes(process: psutil.Process) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


@contextmanager
def by_hand(model: str, port: int, *options: str) -> Iterator[psutil.Process]:
    command = [sys.executable, "-m", "loadtest.naive", model, "--port", str(port), *options]
    process = subprocess.Popen(command)  # noqa: S603 our own command
    try:
        wait_for(lambda: answers(port, PATH, masked_sentences()[0]), most_s=120)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def compare(model: str, asked: argparse.Namespace) -> list[Row]:
    ports = itertools.count(asked.port)
    rows = []
    for name, options in (("naive", ()), ("batched 15 ms / 16", ("--batched",))):
        port = next(ports)
        with by_hand(model, port, *options) as process:
            rows.append(measure(name, port, asked, [process]))
    engines = ["onnx", *(["openvino"] if find_spec("openvino") else [])]
    for engine in engines:
        port = next(ports)
        wanted = ("--model", model, "--engine", engine, "--allow-untrained-head", "--workers", str(asked.workers))
        with Stack(port, *wanted) as stack:
            processes = [process for part in stack.parts().values() for process in part]
            rows.append(measure(f"fillmask {engine}", port, asked, processes))
    return rows


def table(title: str, rows: list[Row], users: int) -> Iterator[str]:
    bare = rows[0]
    yield f"### {title}, {users} users, {psutil.cpu_count()} cores"
    yield ""
    yield "| | requests/s | x naive | mean ms | p50 ms | p99 ms | naive p99 / p99 | CPU ms a request | peak MiB | wrong |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        one = row.outcome
        mean_ms = sum(one.latencies_s) / len(one.latencies_s) * 1000
        p99_ms = one.percentile_ms(99)
        yield (
            f"| {row.name} | {one.per_second:.0f} | {one.per_second / bare.outcome.per_second:.1f} | {mean_ms:.0f} | "
            f"{one.percentile_ms(50):.0f} | {p99_ms:.0f} | {bare.outcome.percentile_ms(99) / p99_ms:.1f} | "
            f"{row.cpu_s / one.answered * 1000:.2f} | {row.peak_bytes >> 20} | {one.wrong + one.lost} |"
        )
    yield ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each measurement")
    parser.add_argument("--users", type=int, default=64)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--port", type=int, default=8490, help="first of ten free ports")
    parser.add_argument("--only", choices=("demo", "base"), help="just one of the two models")
    asked = parser.parse_args()
    lines: list[str] = []
    if asked.only != "base":
        lines += table("demo-zh", compare(str(base_shape.DEMO), asked), asked.users)
    if asked.only != "demo":
        with tempfile.TemporaryDirectory(prefix="fillmask-base-") as folder:
            model = str(base_shape.build(Path(folder) / "bert-base-shape"))
            lines += table("bert-base shape, random weights", compare(model, asked), asked.users)
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
