"""`make loadtest`: the scenarios of loadtest/shapes.py in a row, and a report of what was measured.

Without HOST it tests what answers on this machine's PORT, and if nothing does, a stack that it starts for the purpose. The ramp
comes first and finds the knee; the others get their rates from it. Exit code 1 if a scenario fails: wrong answers, errors,
refusals where there should be none.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from loadtest.report import write
from loadtest.shapes import SCENARIOS, Step, knee
from loadtest.stack import Stack, answers
from loadtest.watch import Service, told

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "loadtest" / "results"

OF_KNEE = {"steady": 0.6, "mixed": 0.04, "burst": 0.6, "overload": 1.0, "soak": 0.3}
"""What rate each scenario gets, as a part of the knee. A mixed request costs about as much as ten of one sentence."""

DEADLINE_MS = {"burst": 500, "overload": 500}
"""How patient the clients of a scenario are, if not the locustfile's default: what cannot be served in time is refused."""

MAY_REFUSE = ("burst", "overload", "ramp")
"""Scenarios that ask for more than can be done: refusals are right there."""


def scenario(name: str, rate: float, asked: argparse.Namespace, service: Service) -> tuple[dict[str, Any], bool]:
    """Runs locust by itself (it patches the standard library); returns its figures and whether it was content."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        options = ["--scenario", name, "--rate", str(rate), "--seconds", str(asked.seconds), "--figures", file.name]
        if name in MAY_REFUSE:
            options += ["--most-refused", "1"]
        if name in DEADLINE_MS:
            options += ["--deadline-ms", str(DEADLINE_MS[name])]
        where = ("-f", "loadtest/locustfile.py", "--host", service.host, "--headless", "--only-summary")
        before, began = service.look(), time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "locust", *where, *options], cwd=ROOT, check=False)  # noqa: S603
        seconds = time.perf_counter() - began
        figures: dict[str, Any] = json.loads(Path(file.name).read_text(encoding="utf-8") or "{}")
        if not figures:
            raise SystemExit(f"locust ended early: exit code {done.returncode}")
        figures["service"] = told(before, service.look(), seconds, figures["answered"])
    return figures, done.returncode == 0


@contextmanager
def service_at(asked: argparse.Namespace) -> Iterator[Service]:
    """What --host names; else what is up on --port; else a stack for as long as this lasts."""
    if asked.host or answers(asked.port, "/readyz"):
        host = asked.host or f"http://127.0.0.1:{asked.port}"
        print(f"testing what is up at {host}", file=sys.stderr)
        yield Service(host, asked.worker_metrics or ())
        return
    with Stack(asked.port, "--metrics-port", str(asked.port + 1), *asked.up) as stack:
        print(f"started a stack at port {asked.port}", file=sys.stderr)
        yield Service.of(stack, asked.port + 1)


def run(asked: argparse.Namespace, service: Service) -> tuple[list[dict[str, Any]], bool]:
    results, content, rate = [], True, asked.rate
    for name in asked.scenarios:
        wanted = 100.0 if name == "ramp" else (rate * (OF_KNEE[name] if not asked.rate else 1.0))
        figures, good = scenario(name, wanted, asked, service)
        results.append(figures)
        content = content and good
        best = knee([Step(**step) for step in figures["steps"]])
        rate = rate or (best.rate if best else 0.0)
        if not rate:
            raise SystemExit("the ramp found no knee, so there is no rate for the others: give --rate")
    return results, content


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--host", help="a running service, http://...; default: what is up here, else a stack of our own"
    )
    parser.add_argument("--port", type=int, default=8000, help="where to look for it on this machine, or to start it")
    parser.add_argument(
        "--worker-metrics", action="append", help="address of a worker's metrics; may be given several times"
    )
    parser.add_argument(
        "--scenario", dest="scenarios", choices=SCENARIOS, action="append", help="only this one; repeatable"
    )
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second; default: from the ramp's knee")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each scenario but the ramp")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the report")
    parser.add_argument("up", nargs="*", help="after --: options for `fillmask up`, if a stack is started")
    asked = parser.parse_args(arguments)
    asked.scenarios = asked.scenarios or ["ramp", "steady", "mixed", "burst", "overload"]
    if not asked.rate and "ramp" not in asked.scenarios:
        asked.scenarios.insert(0, "ramp")
    with service_at(asked) as service:
        results, content = run(asked, service)
    about = f"{service.host}, {psutil.cpu_count()} cores, load generator and service on one machine unless the host is another"
    write(asked.results, about, results)
    print(f"see {asked.results / 'report.md'} and report.html")
    return 0 if content else 1


if __name__ == "__main__":
    sys.exit(main())
