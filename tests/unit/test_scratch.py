"""deploy/scratch.py: folders that go with their process, and what becomes of those that a killed one left."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from deploy.scratch import scratch_folder

_ENDS_BADLY = f"""
import os
from deploy.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "kept").write_text("something")
    os.kill(os.getpid(), {signal.SIGKILL:d})
"""


def aged(folder: Path) -> Path:
    os.utime(folder, (0, 0))
    return folder


def test_what_a_killed_process_left_is_cleared_away_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    others = tmp_path / "somebody-elses"
    others.mkdir()
    with scratch_folder() as in_use:
        command, environment = [sys.executable, "-c", _ENDS_BADLY], os.environ | {"TMPDIR": str(tmp_path)}
        ended = subprocess.run(command, env=environment, check=False, cwd=Path(__file__).parents[2])
        assert ended.returncode == -signal.SIGKILL
        (left,) = set(tmp_path.iterdir()) - {others, in_use}
        with scratch_folder() as young:
            assert left.exists(), "it may only just be made"
        for folder in (left, in_use, others):
            aged(folder)
        with scratch_folder() as last:
            assert set(tmp_path.iterdir()) == {others, in_use, last}
    assert not young.exists()
    assert set(tmp_path.iterdir()) == {others}
