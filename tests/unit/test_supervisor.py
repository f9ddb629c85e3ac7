"""When a dead process is followed by the next one. How real ones live and die is in tests/e2e/test_up.py."""

import subprocess
import sys

import pytest

from common.errors import StartupError
from deploy import supervisor
from deploy.supervisor import STARTUP_ERROR, Child, Process, how_it_ended, restart_wait_s


def ends_with(code: int) -> Process:
    process = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"])
    process.wait()
    return process


class Clock:
    """The supervisor's clock, moved by hand."""

    now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(supervisor, "time", clock)
    return clock


def test_waits_double_are_bounded_and_jittered() -> None:
    assert restart_wait_s(1) == restart_wait_s(2) == 0
    for deaths, most_s in ((3, 0.1), (4, 0.2), (7, 1.6), (10, 10.0), (60, 10.0)):
        waits = [restart_wait_s(deaths) for _ in range(50)]
        assert most_s / 2 <= min(waits) < max(waits) <= most_s


def test_a_dead_process_is_buried_and_followed_at_once_and_later_after_its_wait_and_not_before(clock: Clock) -> None:
    told: list[str] = []

    def start() -> Process:
        told.append("start")
        return ends_with(1)

    child = Child("worker 1", start, lambda: told.append("buried"))
    child.start()
    for _ in range(2):
        child.tend()
    assert told == ["start", "buried", "start", "buried", "start"]
    child.tend()
    child.tend()
    assert told[5:] == ["buried"]
    clock.now_s += 0.11
    child.tend()
    assert told[6:] == ["start"]


def waits_of(child: Child, clock: Clock, capsys: pytest.CaptureFixture[str], lived_s: float = 0.0) -> float:
    """One life and death; the wait that was told."""
    if not child.process:
        clock.now_s += 20.0
        child.tend()
    clock.now_s += lived_s
    child.tend()
    told = capsys.readouterr().err.rpartition(" starts ")[2]
    return 0.0 if told == "at once\n" else float(told.removeprefix("in ").removesuffix(" s\n"))


def test_deaths_in_a_row_wait_longer_until_one_has_lived(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    child = Child("worker 1", lambda: ends_with(1))
    waits = [waits_of(child, clock, capsys) for _ in range(11)]
    assert waits[:2] == [0, 0]
    assert waits[6] >= 0.8
    assert 5 <= waits[10] <= 10
    assert waits_of(child, clock, capsys, lived_s=31.0) == 0


def test_a_wrong_setting_is_not_tried_again_soon(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    assert waits_of(Child("worker 1", lambda: ends_with(STARTUP_ERROR)), clock, capsys) == 10.0


def test_what_cannot_be_started_is_tried_again(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> Process:
        raise StartupError("no port is free")

    child = Child("redis", fails)
    for when in ("at once", "at once", "in 0."):
        child.tend()
        assert f"redis cannot be started: no port is free; the next one starts {when}" in capsys.readouterr().err
    child.tend()
    assert capsys.readouterr().err == ""


def test_how_it_ended() -> None:
    assert how_it_ended(-9) == "was killed by SIGKILL"
    assert how_it_ended(3) == "ended with exit code 3"
