"""Folders that live as long as the process that made them. What a killed one left, the next one clears away."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "fillmask-up-"

_YOUNG_S = 60.0
"""One that is as young as this may not be locked yet."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder, locked while it is used: the kernel takes the lock off whatever way the process ends, and whatever its
    number is in another container that sees the same folder."""
    _clear_away(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        lock = os.open(name, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield Path(name)
        finally:
            os.close(lock)


def _clear_away(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            if time.time() - folder.stat().st_mtime < _YOUNG_S:
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:  # another user's, or gone meanwhile
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass  # it is in use
        finally:
            os.close(lock)
