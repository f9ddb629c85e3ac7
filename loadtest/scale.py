"""`make scale`: how throughput grows with workers and with front-ends, and how many of each a rate needs.

Workers have the drill engine, a simulated device that costs a fixed time a batch and a time a token, spent asleep as a GPU's host
would: so that two cores can show several devices at work. First a slow device, which is the limit until there are enough workers;
then one so fast that the front-end is. The sizes come from the measured CPU of each part. Writes scale.md, scale.json and charts.
"""

import argparse
import asyncio
import itertools
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from loadtest.closed_loop import Load, Outcome, closed_loop
from loadtest.record import write_results
from loadtest.stack import DEMO, Stack, cpu_s
from loadtest.svg import chart
from loadtest.texts import known

RESULTS = Path(__file__).with_name("results")
PATH = "/v1/fill-mask"
COUNTS = (1, 2, 4)

SLOW = ("--drill-batch-ms", "60", "--drill-token-us", "50", "--max-batch-requests", "8")
"""About 120 texts/s a device: eight of them take 60 ms and 50 us a token."""

FAST = ("--drill-batch-ms", "1")
"""Up to 64 texts in a millisecond: more than one front-end can put."""

CLIENTS = 128
"""Four workers have 8 texts on the device and 8 prepared each; the others wait in the queue."""

RATES = (1_000, 10_000, 100_000)
FILLED = 0.6
"""How busy a process may be on average, so that bursts do not queue."""


class Point(NamedTuple):
    """One stack under load. `cores` are CPU seconds a second of each part, `busiest_front_end` of one of its processes."""

    device: str
    front_ends: int
    workers: int
    texts_s: float
    p50_ms: float
    p99_ms: float
    cores: Mapping[str, float]
    busiest_front_end: float
    wrong: int


def measure(device: str, front_ends: int, workers: int, asked: argparse.Namespace) -> Point:
    bodies = [json.dumps({"texts": [gap.text]}).encode() for gap in known().short]
    options = ("--model", str(DEMO), "--engine", "drill", "--log-level", "error", *(SLOW if device == "slow" else FAST))

    def load(seconds: float) -> Outcome:
        wanted = Load(asked.port, PATH, itertools.cycle(bodies), CLIENTS, seconds)
        return asyncio.run(closed_loop(wanted, lambda _, status, __: status == 200))

    with Stack(asked.port, *options, "--api", str(front_ends), "--workers", str(workers)) as stack:
        parts = stack.parts()
        each = {f"{part} {number}": [one] for part in parts for number, one in enumerate(parts[part])}
        load(min(2.0, asked.seconds))
        before = cpu_s(each)
        one = load(asked.seconds)
        used = {name: (after_s - before[name]) / one.duration_s for name, after_s in cpu_s(each).items()}
    print(f"{device} device, {front_ends} front-ends, {workers} workers: {one.per_second:.0f}/s", file=sys.stderr)
    return Point(
        device,
        front_ends,
        workers,
        round(one.per_second, 1),
        round(one.percentile_ms(50), 1),
        round(one.percentile_ms(99), 1),
        {part: round(sum(share for name, share in used.items() if name.startswith(part)), 3) for part in parts},
        round(max(share for name, share in used.items() if name.startswith("front-end")), 2),
        one.wrong + one.lost,
    )


def sweep(asked: argparse.Namespace) -> list[Point]:
    workers = [measure("slow", 1, count, asked) for count in COUNTS]
    front_ends = [measure("slow", count, 4, asked) for count in COUNTS[1:]]
    fast = [measure("fast", count, 1, asked) for count in COUNTS]
    return [*workers, *front_ends, *fast, measure("fast", 1, 2, asked)]


def table(points: Sequence[Point]) -> Iterator[str]:
    first = {point.device: point for point in reversed(points)}
    yield f"### Scale out, simulated devices, closed loop of {CLIENTS}, {psutil.cpu_count()} cores, load generator included"
    yield ""
    yield "| device | front-ends | workers | texts/s | x first | p50 ms | p99 ms | busiest front-end, % of a core | wrong |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for point in points:
        yield (
            f"| {point.device} | {point.front_ends} | {point.workers} | {point.texts_s:.0f} | "
            f"{point.texts_s / first[point.device].texts_s:.2f} | {point.p50_ms:.0f} | {point.p99_ms:.0f} | "
            f"{100 * point.busiest_front_end:.0f} | {point.wrong} |"
        )
    yield ""
    yield "![workers](scale-workers.svg) ![front-ends](scale-front-ends.svg)"
    yield ""


def charts(points: Sequence[Point]) -> dict[str, str]:
    by_workers = [point for point in points if point.device == "slow" and point.front_ends == 1]
    by_front_ends = [point for point in points if point.device == "fast" and point.workers == 1]
    workers = {
        "measured": [(point.workers, point.texts_s) for point in by_workers],
        "in proportion": [(point.workers, by_workers[0].texts_s * point.workers) for point in by_workers],
    }
    front_ends = {
        "fast device": [(point.front_ends, point.texts_s) for point in by_front_ends],
        "slow device x 4": [
            (point.front_ends, point.texts_s) for point in points if point.device == "slow" and point.workers == 4
        ],
    }
    return {
        "scale-workers.svg": chart("slow devices, one front-end", "workers", "texts/s", workers),
        "scale-front-ends.svg": chart("front-ends", "front-ends", "texts/s", front_ends),
    }


def sizes(cost_ms: Mapping[str, float]) -> Iterator[str]:
    """How many processes, each one core, a rate of one-text requests needs for all but the model."""
    yield f"### How many, at {FILLED:.0%} of a core each"
    yield ""
    yield "Measured CPU ms a text: " + ", ".join(f"{part} {cost:.3f}" for part, cost in cost_ms.items()) + "."
    yield "Workers here are what the pipe needs; a model needs max(this, rate / what one device does / the same part)."
    yield ""
    yield "| requests/s | front-ends | workers | Redis shards |"
    yield "|---|---|---|---|"
    for rate in RATES:
        needed = [math.ceil(rate * cost_ms[part] / 1000 / FILLED) for part in ("front-end", "worker", "Redis")]
        yield f"| {rate:,} | {' | '.join(str(count) for count in needed)} |"
    yield ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each measurement")
    parser.add_argument("--port", type=int, default=8690, help="a free port")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of what is written")
    asked = parser.parse_args()
    points = sweep(asked)
    busy = next(point for point in points if point.device == "fast")
    cost_ms = {part: cores / busy.texts_s * 1000 for part, cores in busy.cores.items()}
    told = "\n".join((*table(points), *sizes(cost_ms)))
    write_results(asked.results, "scale", told, points)
    for name, picture in charts(points).items():
        (asked.results / name).write_text(picture, encoding="utf-8")
    print(told)
    return 1 if any(point.wrong for point in points) else 0


if __name__ == "__main__":
    sys.exit(main())
