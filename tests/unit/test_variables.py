"""deploy/variables.py: a misspelt FILLMASK_* variable is named, with the one that was meant; its value never is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.variables import known, warnings

ROOT = Path(__file__).resolve().parents[2]


def test_options_of_every_part_are_known() -> None:
    """One environment serves all: a worker's option is no mistake in a front-end's."""
    assert {"FILLMASK_PORT", "FILLMASK_LEASE_MS", "FILLMASK_WORKERS", "FILLMASK_REDIS_URL", "REDIS_URL"} <= known()
    assert list(warnings([*known(), "PATH", "FILLMASKX", "HF_TOKEN"])) == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("FILLMASK_MAX_TEXT", "FILLMASK_MAX_TEXTS"),
        ("FILLMASK_REDISURL", "FILLMASK_REDIS_URL"),
        ("fillmask_max_backlogs", "FILLMASK_MAX_BACKLOG"),
        ("FILLMASK_API_KEY_FILE", "FILLMASK_API_KEYS_FILE"),
    ],
)
def test_the_nearest_one_is_named(name: str, meant: str) -> None:
    (told,) = warnings([name])
    assert told == f"{name} is no option, and without effect; did you mean {meant}?"


def test_what_resembles_nothing_is_named_alone() -> None:
    assert list(warnings(["FILLMASK_COFFEE"])) == ["FILLMASK_COFFEE is no option, and without effect"]


def test_the_start_says_so_and_goes_on() -> None:
    environment = {**os.environ, "FILLMASK_MAX_TEXT": "hunter2", "FILLMASK_PORT": "no number"}
    command = [sys.executable, "-m", "deploy.cli", "api"]
    told = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    first, second = told.stderr.splitlines()
    assert first.startswith("fillmask api: FILLMASK_MAX_TEXT is no option")
    assert second.startswith("fillmask api: FILLMASK_PORT: "), "what was wrong otherwise is told as ever"
    assert "hunter2" not in told.stderr
