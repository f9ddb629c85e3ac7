"""The last part of `make bench`: the whole service over HTTP with one engine, as a part of what that engine does by itself.

The engine is timed right before and right after, at its best batch, with nothing else running; the load is a closed loop of
sentences of as many tokens.
"""

import argparse
import asyncio
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from loadtest.bench_rivals import Rival, running
from loadtest.closed_loop import Load, Outcome, closed_loop
from loadtest.stack import Stack
from loadtest.watch import Service, told

PATH = "/v1/fill-mask"
SENTENCE = "今天我们一起去公园里看[MASK]花吧"
"""16 tokens with the two at its ends."""

LIST = 32


def served(rival: Rival, count: int, places: dict[str, str], asked: argparse.Namespace) -> dict[str, Any]:
    before = _by_itself(rival, count, places)
    words = [word.format(**places) for word in rival.arguments[3:]]
    options = ("--allow-untrained-head", "--api", str(asked.api), "--workers", str(asked.workers))
    figures: dict[str, Any] = {"engine": rival.name, "api": asked.api, "workers": asked.workers}
    figures["connections"] = asked.connections
    began_s = time.perf_counter()
    with Stack(asked.port, *words, *options, "--metrics-port", str(asked.port + 1)) as stack:
        figures["start to ready, s"] = time.perf_counter() - began_s
        service = Service.of(stack, asked.port + 1)
        for name, texts in (("one text a request", 1), (f"{LIST} texts a request", LIST)):
            figures[name] = _loaded(texts, service, asked)
    after = _by_itself(rival, count, places)
    figures["engine by itself, texts/s"] = (before + after) / 2
    figures["part of the engine"] = figures["one text a request"]["texts/s"] * 2 / (before + after)
    return figures


def _by_itself(rival: Rival, count: int, places: dict[str, str]) -> float:
    with running([rival], places) as (one,):
        rates = [one.ask(do="time", count=count, length=16, seconds=1.0) for _ in range(3)]
    pace: float = median(rate["texts"] / rate["seconds"] for rate in rates)
    return pace


def _loaded(texts: int, service: Service, asked: argparse.Namespace) -> dict[str, Any]:
    body = json.dumps({"texts": [SENTENCE] * texts}, ensure_ascii=False).encode()
    connections = asked.connections if texts == 1 else max(asked.connections // 16, 4)

    def load(duration_s: float) -> Outcome:
        wanted = Load(asked.port, PATH, itertools.repeat(body), connections, duration_s)
        return asyncio.run(closed_loop(wanted, lambda _, status, __: status == 200))

    load(min(2.0, asked.service_seconds))
    before, began_s = service.look(), time.perf_counter()
    with _gpu_watched() as percents:
        outcome = load(asked.service_seconds)
    figures = told(before, service.look(), time.perf_counter() - began_s, outcome.answered * texts)
    figures |= {
        "texts/s": outcome.per_second * texts,
        "p50 ms": outcome.percentile_ms(50),
        "p99 ms": outcome.percentile_ms(99),
        "wrong or lost": outcome.wrong + outcome.lost,
    }
    if percents:
        figures["GPU utilization by nvidia-smi, %"] = median(percents)
    return figures


@contextmanager
def _gpu_watched() -> Iterator[list[int]]:
    """Filled when it is over; stays empty where there is no nvidia-smi."""
    percents: list[int] = []
    command = shutil.which("nvidia-smi")
    if not command:
        yield percents
        return
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    query = ("-i", device, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "250")
    process = subprocess.Popen([command, *query], stdout=subprocess.PIPE, text=True)  # noqa: S603 found on PATH
    try:
        yield percents
    finally:
        process.terminate()
        percents += [int(line) for line in process.communicate()[0].split() if line.isdigit()]
