"""A folder that is there whole or not at all: it is made under another name beside its place, and renamed when it is done.

Who is interrupted leaves nothing; who is killed leaves what the next one for the same place takes away.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from common.errors import StartupError

_LOCK = "lock"
"""In the unfinished folder; the kernel frees it when its holder is killed, and that tells an orphan from one at work."""


@contextmanager
def partial_folder(destination: Path) -> Iterator[Path]:
    """An empty folder that becomes `destination` if the body succeeds, and is removed if it does not.

    Raises StartupError if `destination` is there with anything in it, before or after, or cannot be made.
    """
    _refuse_occupied(destination)
    prefix = f".{destination.name}.partial-"
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        _remove_orphans(destination.parent, prefix)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=destination.parent) as name:
            unfinished = Path(name)
            with FileLock(unfinished / _LOCK):
                whole = unfinished / destination.name
                whole.mkdir()
                yield whole
                _refuse_occupied(destination)
                whole.replace(destination)  # over an empty folder, too
    except OSError as error:
        raise StartupError(f"{destination} cannot be written: {error.strerror or error}") from None


def _refuse_occupied(destination: Path) -> None:
    if destination.exists() and not (destination.is_dir() and not any(destination.iterdir())):
        raise StartupError(f"{destination} is there already and not empty; name a folder that is to be made")


def _remove_orphans(parent: Path, prefix: str) -> None:
    for folder in parent.iterdir():
        if not folder.name.startswith(prefix):
            continue
        try:
            with FileLock(folder / _LOCK, timeout=0):
                shutil.rmtree(folder, ignore_errors=True)
        except Timeout:
            continue  # another export to the same place is at work
