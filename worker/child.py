"""One of our own modules as a child process: what it loads is gone when it ends, and a crash of it is not the worker's."""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

from worker.cores import usable_cores

_PR_SET_PDEATHSIG = 1


PARENT = "FILLMASK_PARENT_PID"
"""Where such a child finds who started it. By hand nobody is named, and it stays alone."""


def end_with_parent() -> None:
    """Called by such a child: a worker that is told to stop meanwhile leaves nobody at work. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != int(os.environ.get(PARENT, os.getppid())):
            sys.exit(1)  # it died before the kernel was asked


def run_module(module: str, *arguments: str, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    """`python -m module`, waited for. Raises subprocess.TimeoutExpired; any exit code is the caller's to judge."""
    house = str(Path(__file__).resolve().parent.parent)
    environment = {
        **os.environ,
        PARENT: str(os.getpid()),
        "PYTHONPATH": os.pathsep.join(filter(None, (house, os.environ.get("PYTHONPATH")))),
        "PYTHONUTF8": "1",  # LANG=C would spoil a path outside ASCII
        "HF_HUB_OFFLINE": "1",  # all files are here already
        "OMP_NUM_THREADS": str(usable_cores()),
    }
    return subprocess.run(  # noqa: S603  our own module; the arguments pass no shell
        [sys.executable, "-P", "-m", module, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=timeout_s,
        check=False,
    )
