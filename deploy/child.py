"""`python child.py PARENT_PID COMMAND...`: becomes the command, having asked the kernel to kill it when the parent dies.

So a supervisor that is itself killed leaves nothing behind. A wrapper and not a preexec_fn, which may deadlock in a parent
with threads. It supervises nothing, and where there is no such request (not Linux) it just becomes the command.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO

_PR_SET_PDEATHSIG = 1


def spawn(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    fds: Sequence[int] = (),
    output: IO[bytes] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts the command tied to this process, in a session of its own: Ctrl-C in the terminal reaches the parent only."""
    return subprocess.Popen(  # noqa: S603  the command is our own
        [sys.executable, "-I", __file__, str(os.getpid()), *command],
        env=environment,
        pass_fds=fds,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        start_new_session=True,
    )


def main(parent: str, *command: str) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != int(parent):
            sys.exit(1)  # it died before the kernel was asked
    os.execvp(command[0], command)  # noqa: S606  no shell is wanted


if __name__ == "__main__":
    main(*sys.argv[1:])
