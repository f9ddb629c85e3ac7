"""B16: the load test fails when the service does. Real locust, real stacks; what wrong answers, refusals and errors count as."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stacks import Stack, front_end

from deploy.redis_server import RedisServer, free_port
from loadtest.expect import SENTENCES, not_so_any_more
from loadtest.stack import DEMO
from loadtest.texts import MASK, known, masked

ROOT = Path(__file__).resolve().parents[2]


class Run(NamedTuple):
    code: int
    printed: str
    figures: dict[str, Any]


LOCUST = (sys.executable, "-m", "locust")
ANY_CPU_IS_TOO_MUCH = (
    "import runpy; from locust import runners as r; r.CPU_WARNING_THRESHOLD, r.CPU_MONITOR_INTERVAL = 0, 0.2"
)


def locust(host: str, folder: Path, *options: str, command: Sequence[str] = LOCUST) -> Run:
    """A second of 30 requests a second, unless the options say otherwise."""
    file = folder / "figures.json"
    command = [*command, "-f", "loadtest/locustfile.py", "--headless", "--only-summary"]
    command += ["--host", host, "--rate", "30", "--seconds", "1", "--figures", str(file), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return Run(done.returncode, done.stdout + done.stderr, json.loads(file.read_text(encoding="utf-8")))


def test_b16_right_answers_pass_and_the_report_tells_what_was_measured(demo: Stack, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtest.run", "--host", str(demo.http.base_url).rstrip("/")]
    command += ["--scenario", "steady", "--rate", "30", "--seconds", "2", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "0 failed; 0 refused" in report
    assert "not checked" not in report
    assert (tmp_path / "steady-latency.svg").read_text(encoding="utf-8").count("<polyline") == 3
    assert "<svg" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_b16_lists_and_long_texts_are_checked_too(demo: Stack, tmp_path: Path) -> None:
    run = locust(str(demo.http.base_url).rstrip("/"), tmp_path, "--scenario", "mixed", "--rate", "10")
    assert run.code == 0, run.printed
    assert run.figures["checked"]
    assert run.figures["answered"] > 0


def test_b16_wrong_answers_in_a_200_fail(tmp_path: Path) -> None:
    with Stack(DEMO, "--engine", "echo", "--log-level", "error") as stack:
        run = locust(f"http://127.0.0.1:{stack.port}", tmp_path)
    assert run.code == 1
    assert "a wrong answer" in run.figures["errors"]
    assert run.figures["failed"] > run.figures["answered"]


def test_b16_refusals_are_counted_apart_and_fail_above_their_own_limit(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    with front_end(DEMO, redis_server.url) as (http, _):  # no worker: it refuses everything
        run = locust(str(http.base_url).rstrip("/"), tmp_path)
    assert run.code == 1
    assert run.figures["failed"] == 0
    assert list(run.figures["refused"]) == ["503 no_worker"]
    assert run.figures["refused"]["503 no_worker"] > 0
    assert run.figures["p99_ms"] == 0, "a refusal's latency is not an answer's"


def test_b16_a_service_that_is_not_there_fails(tmp_path: Path) -> None:
    run = locust(f"http://127.0.0.1:{free_port()}", tmp_path)
    assert run.code == 1
    assert run.figures["answered"] == 0


def test_b16_a_generator_that_is_the_limit_says_so(demo: Stack, tmp_path: Path) -> None:
    command = (sys.executable, "-c", f"{ANY_CPU_IS_TOO_MUCH}; runpy.run_module('locust', run_name='__main__')")
    run = locust(str(demo.http.base_url).rstrip("/"), tmp_path, command=command)
    assert run.figures["generator_was_the_limit"]
    assert "warning: the load generator's CPU was the limit" in run.printed


def test_another_model_is_asked_but_not_checked_and_that_is_said(echo_stack: Stack, tmp_path: Path) -> None:
    run = locust(f"http://127.0.0.1:{echo_stack.port}", tmp_path)
    assert run.code == 0, run.printed
    assert not run.figures["checked"]
    assert "answers are not checked" in run.printed


def test_the_recorded_answers_are_the_demo_model_s(demo: Stack) -> None:
    assert not_so_any_more(demo.port, known()) == []


def test_every_sentence_has_one_gap_and_one_word() -> None:
    recorded, sentences = known(), SENTENCES.read_text(encoding="utf-8").splitlines()
    assert len(recorded.short) == len(sentences) >= 500
    assert len(recorded.long) >= 50
    assert len({gap.text for gap in (*recorded.short, *recorded.long)}) == len(recorded.short) + len(recorded.long)
    for gap in (*recorded.short, *recorded.long):
        assert gap.text.count(MASK) == 1
        assert len(gap.word) == 1
    for gap, sentence in zip(recorded.short, sentences, strict=True):
        assert gap.text == masked(sentence, gap.text.index(MASK))
