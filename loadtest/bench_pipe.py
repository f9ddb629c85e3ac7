"""`make bench-pipe`: what the pipe itself costs, from HTTP to Redis to a worker and back, with the echo engine.

Prints CPU milliseconds a request (or a text, for lists) of each part, beside a bare FastAPI route and a bare ASGI function
in the same run on the same machine. The ratio is what counts; absolute figures are those of the machine.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from itertools import repeat
from typing import NamedTuple

import psutil

from loadtest.closed_loop import Load, Outcome, closed_loop
from loadtest.stack import Stack, answers, wait_for

CONNECTIONS = 64
SENTENCE = "床前明月光，疑是地[MASK]霜。"
PATH = "/v1/fill-mask"


class Row(NamedTuple):
    name: str
    texts: int
    outcome: Outcome
    cpu_s: dict[str, float]

    @property
    def texts_answered(self) -> int:
        return self.outcome.answered * self.texts

    def ms(self, part: str) -> float:
        return self.cpu_s.get(part, 0.0) / self.texts_answered * 1000

    @property
    def total_ms(self) -> float:
        return sum(self.cpu_s.values()) / self.texts_answered * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each measurement")
    parser.add_argument("--port", type=int, default=8190, help="first of three free ports")
    asked = parser.parse_args()
    rows = [
        _bare("bare ASGI function", "loadtest.bare:function", asked.port, asked.seconds),
        _bare("bare FastAPI route", "loadtest.bare:route", asked.port + 1, asked.seconds),
    ]
    with Stack(asked.port + 2, "--engine", "echo") as stack:
        parts = stack.parts()
        idle = _idle(parts, min(asked.seconds, 5.0))
        rows.append(_measure("fillmask, 1 text", 1, asked.port + 2, asked.seconds, parts))
        rows.append(_measure("fillmask, list of 32", 32, asked.port + 2, asked.seconds, parts))
        rows.append(_measure("fillmask, 1 client", 1, asked.port + 2, asked.seconds, parts, connections=1))
    _print(rows, idle)
    return 1 if any(row.outcome.wrong or row.outcome.lost for row in rows) else 0


def _bare(name: str, app: str, port: int, seconds: float) -> Row:
    command = [sys.executable, "-m", "uvicorn", app, "--port", str(port), "--no-access-log", "--log-level", "warning"]
    process = subprocess.Popen(command)  # noqa: S603 our own command
    try:
        wait_for(lambda: answers(port, PATH, json.dumps({"texts": [SENTENCE]})))
        return _measure(name, 1, port, seconds, {"front-end": [psutil.Process(process.pid)]})
    finally:
        process.terminate()
        process.wait()


def _measure(
    name: str,
    texts: int,
    port: int,
    seconds: float,
    parts: dict[str, list[psutil.Process]],
    connections: int = CONNECTIONS,
) -> Row:
    body = json.dumps({"texts": [SENTENCE] * texts}).encode()

    def load(duration_s: float) -> Outcome:
        asked = Load(port, PATH, repeat(body), connections, duration_s)
        return asyncio.run(closed_loop(asked, lambda _, status, __: status == 200))

    load(min(1.0, seconds))  # warm up
    before = _cpu_s(parts)
    outcome = load(seconds)
    after = _cpu_s(parts)
    return Row(name, texts, outcome, {part: after[part] - before[part] for part in parts})


def _idle(parts: dict[str, list[psutil.Process]], seconds: float) -> dict[str, float]:
    """Percent of a core that each part takes when nothing happens."""
    before = _cpu_s(parts)
    time.sleep(seconds)
    after = _cpu_s(parts)
    return {part: (after[part] - before[part]) / seconds * 100 for part in parts}


def _cpu_s(parts: dict[str, list[psutil.Process]]) -> dict[str, float]:
    return {part: sum(sum(process.cpu_times()[:2]) for process in processes) for part, processes in parts.items()}


def _print(rows: list[Row], idle: dict[str, float]) -> None:
    parts = ("front-end", "worker", "Redis")
    bare = next(row for row in rows if row.name == "bare FastAPI route")
    print(f"CPU ms a text, closed loop of {CONNECTIONS}, {psutil.cpu_count()} cores, Python {sys.version.split()[0]}\n")
    print(
        f"{'':22}{''.join(f'{part:>11}' for part in parts)}{'total':>9}{'x bare':>8}{'texts/s':>9}{'p50 ms':>8}{'p99 ms':>8}"
    )
    for row in rows:
        costs = "".join(f"{row.ms(part):11.3f}" for part in parts)
        rate = row.outcome.per_second * row.texts
        latency = f"{row.outcome.percentile_ms(50):8.1f}{row.outcome.percentile_ms(99):8.1f}"
        print(f"{row.name:22}{costs}{row.total_ms:9.3f}{row.total_ms / bare.total_ms:8.2f}{rate:9.0f}{latency}")
    print("\nidle, % of a core:", ", ".join(f"{part} {percent:.1f}" for part, percent in idle.items()))


if __name__ == "__main__":
    sys.exit(main())
