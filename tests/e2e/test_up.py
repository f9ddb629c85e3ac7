"""`fillmask up` as a newcomer meets it: what it prints, what it says when it cannot start, what it survives, what it leaves.

Real processes throughout, the echo engine, and no model weights.
"""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from waiting import wait_until

from deploy.redis_server import RedisServer

ROOT = Path(__file__).resolve().parents[2]
POEM = "床前明月光，疑是地[MASK]霜。"

Start = Callable[..., "Up"]


class Up:
    """One `fillmask up`. Its temporary files go to `folder/tmp`, so that a test sees what is left of them."""

    def __init__(self, folder: Path, *options: str, **environment: str) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.out, self.err = folder / "stdout", folder / "stderr"
        ours = {name: value for name, value in os.environ.items() if "REDIS_URL" not in name and "FILLMASK" not in name}
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "deploy.cli", "up", "--engine", "echo", *options],
                cwd=ROOT, stdout=out, stderr=err, env=ours | {"TMPDIR": str(self.temporary)} | environment,
            )  # fmt: skip
        self.seen: set[psutil.Process] = set()

    @property
    def printed(self) -> str:
        return self.out.read_text(encoding="utf-8")

    @property
    def complaints(self) -> str:
        return self.err.read_text(encoding="utf-8")

    @property
    def port(self) -> int:
        match = re.search(r" at http://[^ ]*:(\d+)$", self.printed, re.MULTILINE)
        assert match, self.printed
        return int(match[1])

    def ready(self) -> "Up":
        wait_until(lambda: "Ctrl-C" in self.printed or self.process.poll() is not None, 30, "readiness")
        assert self.process.poll() is None, self.complaints
        return self

    def children(self, part: str = "") -> list[psutil.Process]:
        """Living processes: `-m api`, `-m worker` or the server."""
        found = psutil.Process(self.process.pid).children(recursive=True)
        self.seen.update(found)
        return [child for child in found if part in " ".join(_command_line(child))]

    def ask(self, path: str = "/v1/fill-mask", body: object = None) -> tuple[int, str]:
        """One request on a new connection; its status is 0 if there was none to be had."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=15)
        try:
            connection.request("POST" if body else "GET", path, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    def fill(self) -> int:
        return self.ask(body={"texts": [POEM]})[0]

    def serves(self) -> bool:
        return self.fill() == 200

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.children()
        self.process.send_signal(number)
        return self.process.wait(40)

    def left(self) -> list[psutil.Process]:
        return [process for process in self.seen if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """All that the echo engine needs: facts and a vocabulary."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys("床前明月光，疑是地上霜。举头望低思故乡")]
    config = {
        "architectures": ["BertForMaskedLM"],
        "model_type": "bert",
        "vocab_size": len(pieces),
        "max_position_embeddings": 128,
        "pad_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    return folder


@pytest.fixture
def start(tmp_path: Path, model: Path) -> Iterator[Start]:
    """Starts `fillmask up` on any free port; whatever the test does, nothing may be left when it is over."""
    begun: list[Up] = []

    def up(*options: str, **environment: str) -> Up:
        given = options if "--model" in options else ("--model", str(model), *options)
        begun.append(Up(tmp_path, *(given if "--port" in options else ("--port", "0", *given)), **environment))
        return begun[-1]

    yield up
    for one in begun:
        if one.process.poll() is None:
            one.stop(signal.SIGINT)
        try:
            wait_until(lambda one=one: not one.left(), 10, "the end of all processes")  # type: ignore[misc]
        finally:
            for process in one.left():
                process.kill()


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_newcomer_sees_where_it_is_and_a_command_that_works_as_pasted(start: Start) -> None:
    up = start().ready()
    address = f"http://127.0.0.1:{up.port}"
    assert f"fillmask serves tiny at {address}" in up.printed
    assert f"{address}/docs" in up.printed
    assert up.complaints == ""
    if shutil.which("curl"):
        (command,) = (line for line in up.printed.splitlines() if line.strip().startswith("curl"))
        answer = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True)
        assert json.loads(answer.stdout)["results"][0]["masks"]
    assert up.stop(signal.SIGINT) == 0
    assert up.left() == []
    assert list(up.temporary.iterdir()) == []
    assert up.complaints == ""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--model", "/no/such/folder"], "fillmask up: the model folder /no/such/folder does not exist"),
        (["--port", "loud"], "fillmask up: --port: Input should be a valid integer"),
        (["--prot", "8000"], "fillmask up: unrecognized arguments: --prot 8000"),
        (["--redis-url", "redis://127.0.0.1:1/0"], "fillmask up: Redis cannot be reached (redis://127.0.0.1:1/0)"),
        (["--max-padded-tokens", "64"], "fillmask worker: max_padded_tokens is 64"),
    ],
)
def test_h19_what_cannot_start_says_why_in_one_line_and_leaves_nothing(
    start: Start, options: list[str], expected: str
) -> None:
    up = start(*options)
    while up.process.poll() is None:
        up.children()
        time.sleep(0.01)
    assert up.process.returncode == 2
    assert up.complaints.startswith(expected)
    assert up.complaints.count("\n") == 1
    assert up.printed == ""
    assert list(up.temporary.iterdir()) == []


def test_a_port_in_use_is_told_at_once(start: Start) -> None:
    with taken_port() as port:
        begun = time.monotonic()
        up = start("--port", str(port))
        assert up.process.wait(10) == 2
        assert time.monotonic() - begun < 2
    assert up.complaints == f"fillmask up: cannot listen on 127.0.0.1 port {port}: Address already in use\n"


def test_h19_a_child_that_dies_before_it_is_ready_ends_everything(start: Start) -> None:
    up = start("--workers", "2", "--api", "2")
    wait_until(lambda: len(up.children("-m worker")) == 2, what="two workers")
    first = min(up.children("-m worker"), key=lambda worker: worker.pid)
    first.kill()
    assert up.process.wait(10) == 1
    assert up.complaints == "fillmask up: worker 1 was killed by SIGKILL before the service was ready\n"
    assert up.left() == []


@pytest.mark.parametrize("part", ["-m worker", "-m api", "valkey-server"])
def test_whoever_is_killed_is_replaced_and_the_service_recovers(start: Start, part: str) -> None:
    up = start().ready()
    server = {child.pid for child in up.children("valkey-server")} | {0}
    (victim,) = up.children(part) or up.children("redis-server")
    victim.kill()
    wait_until(lambda: [child for child in up.children(part) if child.pid != victim.pid], what="the next one")
    if part == "-m api":  # the supervisor holds the socket, so this waits and is not refused
        assert up.fill() in (200, 503)
    wait_until(up.serves, 20, "an answer")
    assert (part == "valkey-server") == ({child.pid for child in up.children("valkey-server")} | {0} != server)
    assert "was killed by SIGKILL; the next one starts at once" in up.complaints
    assert up.stop(signal.SIGTERM) == 0
    assert up.left() == []


def test_what_a_killed_worker_had_in_hand_is_handed_over_at_once(start: Start) -> None:
    """Its lease would have lasted longer than any caller waits."""
    up = start("--lease-ms", "60000").ready()
    (worker,) = up.children("-m worker")
    worker.suspend()  # the request below goes to its connection, and no further
    with ThreadPoolExecutor(1) as caller:
        answer = caller.submit(up.fill)
        wait_until(lambda: json.loads(up.ask("/info")[1])["in_flight"] == 1, what="a request in flight")
        worker.kill()
        assert answer.result() == 200


def test_several_of_each_share_port_queue_and_metrics(start: Start) -> None:
    of_another = {"FILLMASK_FD": "77", "FILLMASK_METRICS_DIR": "/nowhere", "FILLMASK_NAME": "somebody"}
    up = start("--api", "2", "--workers", "2", "--drain-s", "5", **of_another).ready()
    assert (len(up.children("-m api")), len(up.children("-m worker"))) == (2, 2)
    wait_until(lambda: len(json.loads(up.ask("/info")[1])["workers"]) == 2, what="both workers")
    victim = up.children("-m api")[0]
    answers = [up.fill() for _ in range(20)]
    victim.kill()
    victim.wait()
    answers += [up.fill() for _ in range(20)]
    wait_until(lambda: len(up.children("-m api")) == 2, what="the next front-end")
    assert set(answers) <= {200, 503}  # 503: a front-end that has not seen the workers yet
    counted = re.search(r"^fillmask_texts_total (\S+)", up.ask("/metrics")[1], re.MULTILINE)
    assert counted, "the dead front-end's count is lost"
    assert float(counted[1]) == answers.count(200)
    assert up.stop() == 0
    assert up.left() == []
    assert list(up.temporary.iterdir()) == []


def test_options_may_come_from_the_environment(start: Start) -> None:
    up = start(FILLMASK_WORKERS="2", FILLMASK_MAX_TEXTS="3").ready()
    assert len(up.children("-m worker")) == 2
    assert json.loads(up.ask("/info")[1])["limits"]["max_texts"] == 3


def test_a_server_that_is_named_is_used_and_left_running(start: Start) -> None:
    with RedisServer(requirepass="s3cret") as server:
        up = start(REDIS_URL=server.url).ready()
        assert up.serves()
        assert len(up.children()) == 2
        assert not any("s3cret" in " ".join(_command_line(child)) for child in up.children())
        assert up.stop() == 0
        assert server.process
        assert server.process.poll() is None


def test_a_supervisor_that_is_killed_leaves_nobody_behind(start: Start) -> None:
    up = start("--workers", "2").ready()
    assert len(up.children()) == 4
    up.process.kill()
    up.process.wait()
    wait_until(lambda: not up.left(), 5, "the end of the children")


def test_a_second_signal_ends_a_drain_that_hangs(start: Start) -> None:
    up = start().ready()
    (worker,) = up.children("-m worker")
    worker.suspend()
    up.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not up.children("-m api"), what="the end of the front-end")
    assert up.process.poll() is None
    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(5) == 1
    assert "stopped at once" in up.complaints
    assert up.left() == []
    assert list(up.temporary.iterdir()) == []


def test_a_redis_that_hangs_does_not_hold_up_the_stop(start: Start) -> None:
    up = start().ready()
    (server,) = up.children("-server")
    server.suspend()
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(30) == 0
    assert up.left() == []
