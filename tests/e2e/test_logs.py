"""What front-end and worker write, as two real processes: a line a request, one id on both sides, and never the text."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pytest
from stacks import front_end, worker
from waiting import wait_until

from deploy.redis_server import RedisServer

OURS = "/v1/fill-mask"
MARKER = "床前明月光"
TEXT = f"{MARKER}[MASK]霜"
FAILS = 92
"""The drill engine fails a batch for this top_k."""


class Logged(NamedTuple):
    http: httpx.Client
    files: dict[str, Path]

    def text(self) -> str:
        return "".join(file.read_text(encoding="utf-8") for file in self.files.values())

    def line(self, part: str, request_id: str) -> dict[str, Any]:
        """The one line about that request, once it is written."""
        return wait_until(lambda: self._found(part, request_id), what=f"a line about {request_id}")[0]

    def _found(self, part: str, request_id: str) -> list[dict[str, Any]]:
        written = self.files[part].read_text(encoding="utf-8")
        whole = written[: written.rfind("\n") + 1].splitlines()
        about = {"message": "request", "request_id": request_id}.items()
        return [line for line in map(json.loads, whole) if about <= line.items()]


@pytest.fixture(scope="module")
def logged(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logged]:
    """All that there is to be seen: at the level debug."""
    folder = tmp_path_factory.mktemp("logs")
    files = {part: folder / part for part in ("front-end", "worker")}
    told = ("--log-level", "debug", "--log-format", "json")
    with (
        RedisServer() as server,
        worker(bert, server.url, *told, log=files["worker"]),
        front_end(bert, server.url, *told, log=files["front-end"]) as (http, _),
    ):
        wait_until(lambda: http.get("/readyz").status_code == 200)
        yield Logged(http, files)


def test_a_failing_request_is_found_on_both_sides(logged: Logged) -> None:
    """At the usual level, too: its line at the worker, and the traceback's, have the id that the caller got."""
    answer = logged.http.post(OURS, json={"texts": [TEXT], "top_k": FAILS})
    assert answer.status_code == 500
    told = logged.line("front-end", answer.headers["x-request-id"])
    assert (told["status"], told["error_type"]) == (500, "prediction_failed")
    why = logged.line("worker", answer.headers["x-request-id"])
    assert (why["level"], why["outcome"], why["tokens"]) == ("warning", "engine_error", told["tokens"])
    assert "RuntimeError: a fault on demand" in logged.files["worker"].read_text()


def test_a_line_a_request_with_what_it_cost(logged: Logged) -> None:
    assert logged.http.post(OURS, json={"texts": [TEXT]}, headers={"x-request-id": "mine-1"}).status_code == 200
    told = logged.line("front-end", "mine-1")
    assert told["ms"] > 0
    told = {name: told[name] for name in ("message", "level", "route", "status", "tokens", "batch_requests")}
    assert told == {
        "message": "request",
        "level": "info",
        "route": OURS,
        "status": 200,
        "tokens": len(MARKER) + 4,  # [CLS], [MASK], 霜, [SEP]
        "batch_requests": 1,
    }
    computed = logged.line("worker", "mine-1")
    assert (computed["level"], computed["outcome"], computed["tokens"]) == ("debug", "ok", told["tokens"])


def test_no_line_of_any_process_has_the_text(logged: Logged) -> None:
    """Answered, refused, failed, malformed, in the path, in a query, as a target, on every dialect."""
    http = logged.http
    asked: list[tuple[str, object]] = [
        (OURS, {"texts": [TEXT], "targets": ["天", MARKER]}),
        (OURS, {"texts": [MARKER]}),
        (OURS, {"texts": [TEXT], "top_k": FAILS}),
        (OURS, {"texts": [TEXT, "[MASK]" * 65]}),
        (OURS, {MARKER: TEXT}),
        (f"{OURS}?q={MARKER}", {"texts": [TEXT]}),
        ("/predict", {"text": TEXT}),
        ("/predict", {"text": MARKER}),
        ("/", {"inputs": TEXT, "parameters": {"targets": [MARKER]}}),
        (f"/models/{MARKER}", {"inputs": TEXT}),
        (f"/v1/models/{MARKER}:predict", {"instances": [TEXT]}),
        (f"/{MARKER}", {"texts": [TEXT]}),
    ]
    statuses = [http.post(path, json=body).status_code for path, body in asked]
    unfinished = f'{{"texts": ["{TEXT}'.encode()
    statuses.append(http.post(OURS, content=unfinished, headers={"content-type": "application/json"}).status_code)
    assert {200, 400, 404, 422, 500} == set(statuses)
    last = http.post(OURS, json={"texts": [TEXT], "top_k": FAILS}).headers["x-request-id"]
    logged.line("worker", last)
    for form in (MARKER, json.dumps(MARKER)[1:-1], quote(MARKER)):
        assert form not in logged.text()
    assert '"request_id"' in logged.text()


def test_people_get_lines_they_can_read(bert: Path, redis_server: RedisServer) -> None:
    """The default: on a terminal no JSON. A pseudo-terminal is one."""
    terminal, seen_by_process = os.openpty()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FILLMASK_")}
    command = [
        sys.executable,
        "-m",
        "worker",
        "--model",
        str(bert),
        "--redis-url",
        redis_server.url,
        "--engine",
        "echo",
    ]
    process = subprocess.Popen(command, stderr=seen_by_process, env=environment)
    os.close(seen_by_process)
    with os.fdopen(terminal, encoding="utf-8") as shown:
        line = next(line for line in shown if " ready: " in line)
        process.terminate()
        assert process.wait(30) == 0
    assert "INFO    fillmask.pipeline: ready: engine echo" in line
