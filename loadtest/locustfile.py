"""Load whose answers are known, for locust: `make loadtest`, or by hand

    locust -f loadtest/locustfile.py --headless --host http://127.0.0.1:8000 --scenario steady --rate 200 --seconds 30
    locust -f loadtest/locustfile.py            the same from locust's page, http://127.0.0.1:8089

Each user sends at fixed times, whatever the answers take, and latency counts from the time at which a request was due: a server
that stalls cannot slow down its own clock (coordinated omission). A wrong word is a failure. What the service refuses (429, 503,
504) is counted apart, by kind. Scenarios: loadtest/shapes.py. Exit code 1 above --most-failed or --most-refused.
"""

import json
import logging
import random
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import gevent
from locust import FastHttpUser, LoadTestShape, events, runners, task
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from loadtest.shapes import RAMP_STEP_S, SCENARIOS, SETTLES_S, Step, knee, next_rate, rate_at, stages
from loadtest.texts import MASK, Request, known, mixed, single
from loadtest.timeline import Counts, between, spans

log = logging.getLogger("fillmask.loadtest")

ANSWERED, REFUSED = "answered", "refused"
"""Rows of locust's table: refusals have rows of their own, one a kind, so that their latencies do not flatter the answers'."""

PER_USER = 2.0
"""Requests a second that one user sends: 100 users offer 200/s. Answers that take longer than half a second make it late."""

SPAWN_RATE = 100
"""Users a second; locust warns above."""

PATH = "/v1/fill-mask"
STOPS_WITHIN_S = 15

EXPECTED = known()

runners.WORKER_REPORT_INTERVAL = 1.0  # in place of 3: a ramp on several machines looks at spans of a few seconds


@events.init_command_line_parser.add_listener
def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--scenario", choices=SCENARIOS, default="steady", help="what is offered when: loadtest/shapes.py"
    )
    parser.add_argument("--rate", type=float, default=100.0, help="requests a second; of a ramp: where it starts")
    parser.add_argument("--seconds", type=float, default=30.0, help="length; a ramp ends by itself")
    parser.add_argument("--deadline-ms", type=int, default=2000, help="what each request allows the service")
    parser.add_argument("--most-failed", type=float, default=0.001, help="part of the requests that may fail")
    parser.add_argument("--most-refused", type=float, default=0.01, help="part of the requests that may be refused")
    parser.add_argument("--figures", default="", help="write what was measured to this JSON file")


@events.init.add_listener
def prepare(environment: Environment, **_: Any) -> None:
    environment.stop_timeout = STOPS_WITHIN_S
    if not isinstance(environment.runner, WorkerRunner):
        environment.figures = Figures(environment)  # type: ignore[attr-defined]


@events.test_start.add_listener
def look_at_the_model(environment: Environment, **_: Any) -> None:
    """Sets what answers are checked against: nothing, if another model is served than expected.tsv was written for."""
    with urlopen(f"{environment.host}/info", timeout=10) as answer:  # noqa: S310 the host that the user named
        info = json.load(answer)
    Reader.mask_token = info["mask_token"]
    Reader.checks = info["fingerprint"] == EXPECTED.fingerprint
    if not Reader.checks:
        log.warning("%s is not the model of expected.tsv: answers are not checked, only their status", info["model"])


class Reader(FastHttpUser):
    """One of many who send at fixed times."""

    network_timeout = 20.0
    connection_timeout = 20.0
    mask_token = MASK
    checks = True

    def on_start(self) -> None:
        options = self.environment.parsed_options
        self._chance = random.Random()
        self._wanted = mixed if options.scenario == "mixed" else single
        self._headers = {"x-request-timeout-ms": str(options.deadline_ms)}
        gevent.sleep(self._chance.random() / PER_USER)  # or all users would send at the same moments
        self._due = time.perf_counter()

    def wait_time(self) -> float:
        """Until the next request is due; none if that has passed."""
        self._due += 1 / PER_USER
        return max(0.0, self._due - time.perf_counter())

    @task
    def fill(self) -> None:
        wanted = self._wanted(EXPECTED, self._chance)
        texts = [gap.text.replace(MASK, self.mask_token) for gap in wanted.gaps]
        body = {"texts": texts, "top_k": wanted.top_k}
        with self.client.post(PATH, json=body, headers=self._headers, name=ANSWERED, catch_response=True) as response:
            response.request_meta["response_time"] = (time.perf_counter() - self._due) * 1000
            if response.status_code in (429, 503, 504):
                kind = f"{response.status_code} {_error_type(response.text)}"
                response.request_meta["name"] = f"{REFUSED} {kind}"
                response.failure(kind)
            elif response.status_code != 200:
                response.failure(f"{response.status_code} {response.error or _error_type(response.text)}")
            elif self.checks and not _right(wanted, response.text):
                response.failure("a wrong answer")


def _right(wanted: Request, answer: str | None) -> bool:
    try:
        results = json.loads(answer or "")["results"]
        words = [result["masks"][0]["candidates"][0]["token"] for result in results]
        enough = all(len(result["masks"][0]["candidates"]) == wanted.top_k for result in results)
    except (ValueError, LookupError, TypeError):
        return False
    return enough and words == [gap.word for gap in wanted.gaps]


def _error_type(answer: str | None) -> str:
    try:
        return str(json.loads(answer or "")["error_type"])
    except (ValueError, LookupError, TypeError):
        return "unexplained"


class Scenario(LoadTestShape):
    """The scenario that --scenario names."""

    def reset_time(self) -> None:
        super().reset_time()
        self._rate: float | None = None
        self._since: Counts | None = None
        self._settled: Counts | None = None

    def tick(self) -> tuple[int, float] | None:
        options = self.runner.environment.parsed_options
        figures = self.runner.environment.figures
        if options.scenario == "ramp":
            rate = self._ramp(figures, options.rate)
        else:
            rate = rate_at(stages(options.scenario, options.rate, options.seconds), self.get_run_time())
        if rate is None:
            return None
        users = max(1, round(rate / PER_USER))
        figures.rate = users * PER_USER
        return users, min(users, SPAWN_RATE)

    def _ramp(self, figures: "Figures", first: float) -> float | None:
        """The step's rate while it lasts; then, when its figures are there, the next one's."""
        now = figures.count()
        if self._rate is None:
            self._rate = next_rate((), first)
        elif self._since is None:  # all its users are there now
            self._since = self._settled = now
        elif now.at_s - self._since.at_s < SETTLES_S:
            self._settled = now
        elif now.at_s - self._since.at_s >= RAMP_STEP_S:
            step = between(self._settled, now)
            figures.steps.append(Step(step.offered, step.answered, step.p50_ms or 0, step.p99_ms or 0))
            log.info(
                "%.0f/s: %.0f answered, p50 %s ms, p99 %s ms", step.offered, step.answered, step.p50_ms, step.p99_ms
            )
            self._since, self._rate = None, next_rate(figures.steps, first)
        return self._rate


class Figures:
    """What was measured, from locust's own statistics: each second, each step of a ramp, the whole."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._stats = environment.stats
        self._started = time.perf_counter()
        self._busiest = 0.0
        self.rate = 0.0
        self.steps: list[Step] = []
        self.counts: list[Counts] = []
        environment.events.test_start.add_listener(self._start)
        environment.events.quitting.add_listener(self._end)
        environment.events.usage_monitor.add_listener(self._usage)

    def count(self) -> Counts:
        answers = self._stats.get(ANSWERED, "POST")
        refused = sum(self.refused().values())
        right = answers.num_requests - answers.num_failures
        at_s = time.perf_counter() - self._started
        return Counts(at_s, self.rate, right, refused, answers.num_failures, dict(answers.response_times))

    def refused(self) -> dict[str, int]:
        """By kind."""
        prefix = f"{REFUSED} "
        entries = self._stats.entries.values()
        return {one.name.removeprefix(prefix): one.num_requests for one in entries if one.name.startswith(prefix)}

    def whole(self) -> dict[str, Any]:
        options, total, answers = self._environment.parsed_options, self.count(), self._stats.get(ANSWERED, "POST")
        errors = {str(one.error): one.occurrences for one in self._stats.errors.values() if one.name == ANSWERED}
        return {
            "scenario": options.scenario,
            "rate": options.rate,
            "checked": Reader.checks,
            "answered": total.answered,
            "failed": total.failed,
            "errors": errors,
            "refused": self.refused(),
            "mean_ms": answers.avg_response_time,
            "p50_ms": answers.get_response_time_percentile(0.5),
            "p95_ms": answers.get_response_time_percentile(0.95),
            "p99_ms": answers.get_response_time_percentile(0.99),
            "seconds": [span._asdict() for span in spans(self.counts)],
            "steps": [step._asdict() for step in self.steps],
            "generator_percent": self._busiest,
            "generator_was_the_limit": self._generator_was_the_limit(),
        }

    def _generator_was_the_limit(self) -> bool:
        runner = self._environment.runner
        return runner.cpu_warning_emitted or (isinstance(runner, MasterRunner) and runner.worker_cpu_warning_emitted)

    def _usage(self, cpu_usage: float, **_: Any) -> None:
        self._busiest = max(self._busiest, cpu_usage)

    def _start(self, **_: Any) -> None:
        self.steps, self.counts, self._started = [], [], time.perf_counter()
        gevent.spawn(self._count_each_second)

    def _count_each_second(self) -> None:
        while self._environment.runner.state not in ("stopped", "cleanup"):
            self.counts.append(self.count())
            gevent.sleep(1.0)

    def _end(self, **_: Any) -> None:
        """Says what it found, and decides the exit code."""
        options, whole = self._environment.parsed_options, self.whole()
        if self.steps:
            best = knee(self.steps)
            print(
                f"knee: {best.rate:.0f} requests/s, p50 {best.p50_ms} ms, p99 {best.p99_ms} ms" if best else "no knee"
            )
        if whole["generator_was_the_limit"]:
            print("warning: the load generator's CPU was the limit, so the figures are its own: give it more processes")
        if options.figures:
            Path(options.figures).write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        refused = sum(whole["refused"].values())
        sent = whole["answered"] + whole["failed"] + refused
        good = (
            whole["answered"]
            and whole["failed"] <= options.most_failed * sent
            and refused <= options.most_refused * sent
        )
        print(
            f"{whole['answered']} answered, {whole['failed']} failed, {refused} refused: {'pass' if good else 'FAIL'}"
        )
        self._environment.process_exit_code = 0 if good else 1
