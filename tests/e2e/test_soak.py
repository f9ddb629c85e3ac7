"""A short soak: the same command as `make soak`, long enough to see what it looks for."""

import subprocess
import sys
from pathlib import Path

from deploy.redis_server import free_port

ROOT = Path(__file__).resolve().parents[2]


def test_r06_nothing_grows_and_nothing_is_left_behind(bert: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "loadtest.soak",
        "--minutes",
        "0.15",
        "--engine",
        "echo",
        "--port",
        str(free_port()),
    ]
    environment = {"FILLMASK_MODEL": str(bert), "PATH": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
