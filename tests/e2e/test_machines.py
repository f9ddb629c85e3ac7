"""Several machines, as deploy/README.md brings them up by hand: four network namespaces on one switch, and a cable that is cut.

Needs Linux, root and `ip`; anywhere else it is skipped.
"""

import asyncio
import ctypes
import itertools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
from waiting import wait_until

from deploy.redis_server import find_server
from loadtest.closed_loop import Load, Outcome, closed_loop

ROOT = Path(__file__).resolve().parents[2]
OURS = "/v1/fill-mask"
BODY = json.dumps({"texts": ["今天[MASK]气真好"], "top_k": 1}).encode()
REDIS, FRONT_END, *WORKERS = (f"10.87.0.{host}" for host in range(1, 5))

Value = TypeVar("Value")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def commands() -> dict[str, str]:
    """What the page tells to type on each machine."""
    page = (ROOT / "deploy/README.md").read_text(encoding="utf-8").split("### Four machines by hand")[1]
    block = page.split("```sh\n")[1].split("```")[0]
    told: dict[str, str] = {}
    for paragraph in block.split("\n\n"):
        where, _, lines = paragraph.partition("\n")
        told |= dict.fromkeys(re.findall(r"[\d.]{7,}", where), lines)
    return told


class Machines:
    """Each address is a namespace with one cable to the switch, a namespace too. This host's own network is not touched."""

    def __init__(self) -> None:
        self._prefix = f"fillmask-{os.getpid()}-"
        self._names: list[str] = []

    def connect(self) -> None:
        self._add("switch")
        ip("-n", self._named("switch"), "link", "add", "bridge", "type", "bridge")
        ip("-n", self._named("switch"), "link", "set", "bridge", "up")
        for address in (REDIS, FRONT_END, *WORKERS):
            self._plug_in(address)

    def close(self) -> None:
        for name in self._names:
            ip("netns", "del", name)

    @contextmanager
    def running(self, address: str, lines: str, environment: dict[str, str]) -> Iterator[None]:
        *before, last = lines.strip().splitlines()
        script = "\n".join([*before, f"exec {last}"])  # the shell makes way for it, so that it gets the signal
        command = ["ip", "netns", "exec", self._named(address), "sh", "-c", script]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)

    def inside(self, address: str, function: Callable[[], Value]) -> Value:
        """Called by a thread that lives on that machine: the sockets it makes belong there."""

        def enter() -> None:
            with open(f"/run/netns/{self._named(address)}", "rb") as namespace:
                assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) == 0

        with ThreadPoolExecutor(1, initializer=enter) as thread:
            return thread.submit(function).result()

    def cable(self, address: str, state: str) -> None:
        """`down` loses every packet and tells nobody, as an unplugged cable."""
        ip("-n", self._named("switch"), "link", "set", f"to-{address}", state)

    def _plug_in(self, address: str) -> None:
        self._add(address)
        machine, switch = self._named(address), self._named("switch")
        ip("-n", switch, "link", "add", f"to-{address}", "type", "veth", "peer", "name", "eth0", "netns", machine)
        ip("-n", switch, "link", "set", f"to-{address}", "master", "bridge", "up")
        ip("-n", machine, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", machine, "link", "set", device, "up")

    def _add(self, name: str) -> None:
        ip("netns", "add", self._named(name))
        self._names.append(self._named(name))

    def _named(self, name: str) -> str:
        return self._prefix + name


@pytest.fixture
def machines() -> Iterator[Machines]:
    built = Machines()
    try:
        built.connect()
    except (OSError, subprocess.CalledProcessError) as error:
        built.close()
        pytest.skip(f"network namespaces are not to be had here: {getattr(error, 'stderr', '') or error}")
    yield built
    built.close()


@pytest.fixture
def environment(bert: Path, tmp_path: Path) -> dict[str, str]:
    """The page's commands under their names, and a model that needs no weights."""
    shims = {"redis-server": f'"{find_server().path}"', "fillmask": f'"{sys.executable}" -m deploy.cli'}
    for name, command in shims.items():
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (tmp_path / name).chmod(0o755)
    ours = {"FILLMASK_MODEL": str(bert), "FILLMASK_ENGINE": "drill", "FILLMASK_LOG_LEVEL": "error"}
    return os.environ | ours | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def test_a_worker_host_is_cut_off_under_load(machines: Machines, environment: dict[str, str]) -> None:
    def ready() -> int:
        try:
            found = httpx.get(f"http://{FRONT_END}:8000/info").json()["workers"]
            return len([worker for worker in found if worker["state"] == "ready"])
        except httpx.TransportError:
            return 0

    def all_serve() -> None:
        wait_until(lambda: ready() == len(WORKERS), within_s=30.0, what="a front-end that sees both workers")

    refused: list[bytes] = []

    def note(_: bytes, status: int, answer: bytes) -> bool:
        refused.extend([answer] if status != 200 else ())
        return status == 200

    def load() -> Outcome:
        whole = Load(8000, OURS, itertools.repeat(BODY), connections=16, duration_s=3.0)
        return asyncio.run(closed_loop(whole, note))

    with ExitStack() as stack:
        for address, lines in commands().items():
            stack.enter_context(machines.running(address, lines, environment))
        machines.inside(FRONT_END, all_serve)
        cutting = threading.Timer(0.5, machines.cable, (WORKERS[1], "down"))
        cutting.start()
        outcome = machines.inside(FRONT_END, load)
        cutting.join()
        assert (outcome.wrong, outcome.lost) == (0, 0), set(refused)
        assert outcome.answered > 200
        assert max(outcome.latencies_s) > 1.0, "some requests were in the hands of the worker that was cut off"
        machines.inside(FRONT_END, lambda: wait_until(lambda: ready() == 1, what="the front-end to miss one"))
        machines.cable(WORKERS[1], "up")
        machines.inside(FRONT_END, all_serve)
