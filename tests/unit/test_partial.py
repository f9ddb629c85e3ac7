"""A folder that is being made is whole or not there, whatever ends its maker."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import StartupError
from worker.partial import partial_folder

ROOT = Path(__file__).resolve().parents[2]

AT_WORK = """
import signal
import sys
from pathlib import Path
from deploy.export import _ended_by_sigterm
from worker.partial import partial_folder

signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in the background ignores it otherwise
with _ended_by_sigterm(), partial_folder(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("written")
    print("at work", flush=True)
    sys.stdin.readline()
"""


def make(folder: Path) -> None:
    with partial_folder(folder) as unfinished:
        (unfinished / "file").write_text("whole")
        assert not folder.exists() or not any(folder.iterdir())


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", AT_WORK, str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "at work\n"
    return child


@pytest.mark.parametrize("there", ["nothing", "an empty folder"])
def test_it_appears_whole(tmp_path: Path, there: str) -> None:
    folder = tmp_path / "模型 [1]"
    if there == "an empty folder":
        folder.mkdir()
    make(folder)
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    assert [path.name for path in folder.iterdir()] == ["file"]


def test_what_is_there_is_never_touched(tmp_path: Path) -> None:
    make(tmp_path / "model")
    with pytest.raises(StartupError, match="is there already"):
        make(tmp_path / "model")
    assert (tmp_path / "model" / "file").read_text() == "whole"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StartupError, match="cannot be written"):
        make(tmp_path / "file" / "model")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_one_leaves_no_trace(tmp_path: Path, number: signal.Signals) -> None:
    with start(tmp_path / "model") as child:
        assert len(list(tmp_path.iterdir())) == 1
        child.send_signal(number)
    assert child.returncode != 0
    assert not list(tmp_path.iterdir())


def test_a_killed_one_is_cleared_away_by_the_next_and_one_at_work_is_not(tmp_path: Path) -> None:
    with start(tmp_path / "model") as killed:
        killed.kill()
    (orphan,) = tmp_path.iterdir()
    with start(tmp_path / "model") as at_work:
        assert not orphan.exists()
        make(tmp_path / "model")
        assert len(list(tmp_path.iterdir())) == 2
        at_work.communicate("go\n")
    assert at_work.returncode != 0, "the other was first"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
