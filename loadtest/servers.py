"""The servers that `make compare` puts under load, each started alone: what the tutorials build, and this service."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import psutil

from loadtest.stack import Parts, Stack, answers, get, wait_for
from loadtest.watch import Service

INT8 = "openvino-int8"
"""Folder of a model's int8 graph, and the engine that runs it."""

_FIRST = '{"text": "今天[MASK]气很好"}'.encode()


class Server(NamedTuple):
    port: int
    parts: Parts
    busy_s: Callable[[], float]
    """How long its device has been computing, since it was started."""


@contextmanager
def by_hand(model: Path, options: Sequence[str], port: int) -> Iterator[Server]:
    """loadtest/naive.py, with torch's own choice of threads."""
    command = [sys.executable, "-m", "loadtest.naive", str(model), "--port", str(port), *options]
    process = subprocess.Popen(command)  # noqa: S603 our own command
    try:
        wait_for(lambda: answers(port, "/predict", _FIRST), most_s=120)
        yield Server(port, {"all": [psutil.Process(process.pid)]}, lambda: float(get(port, "/busy")["busy_s"]))
    finally:
        process.terminate()
        process.wait()


@contextmanager
def fillmask(model: Path, options: Sequence[str], port: int) -> Iterator[Server]:
    """`fillmask up`; its workers serve their metrics at the ports above."""
    wanted = ("--model", str(model), "--allow-untrained-head", "--metrics-port", str(port + 1), *options)
    with Stack(port, *wanted) as stack:
        service = Service.of(stack, port + 1)
        yield Server(port, service.parts, lambda: service.look().samples.get("fillmask_busy_seconds_total", 0.0))


def with_int8(model: Path, folder: Path, trained: bool) -> Path | None:
    """The same model for int8: itself, or the new `folder` with what `fillmask export --int8` makes; None if none.

    Random weights give near ties, which int8 swaps, so of a model that is not `trained` no agreement is asked.
    """
    if (model / INT8).is_dir():
        return model
    if not find_spec("openvino") or not find_spec("nncf"):
        print("no int8: openvino or nncf is not installed", file=sys.stderr)
        return None
    command = [sys.executable, "-m", "deploy.cli", "export", str(folder), "--model", str(model), "--int8"]
    command += [] if trained else ["--least-agreement", "0"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)  # noqa: S603 our own command
    return folder if done.returncode == 0 and (folder / INT8).is_dir() else None


def engines() -> list[str]:
    return ["onnx", *(["openvino"] if find_spec("openvino") else [])]
