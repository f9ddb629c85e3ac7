"""Model files that a library has mapped into memory, and read through while it loaded: their pages are given back.

A library makes its own, rearranged copy of most weights and never looks at the file again, but until memory is short its pages
count as this process's. One that is looked at after all is read again. It changes no mapping and no file.
"""

import ctypes
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_DONT_NEED = 4
"""MADV_DONTNEED of Linux, the same on every architecture that Python runs on but Alpha."""


def give_back(folder: Path) -> None:
    """Of all files in the folder. Does nothing where there is no /proc."""
    try:
        lines = _MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return
    files = {str(file.resolve()) for file in folder.iterdir()}  # a hub's cache has links to files elsewhere
    madvise = ctypes.CDLL(None).madvise
    for line in lines:
        addresses, rights, *_, path = line.split(maxsplit=5)
        if path in files and "w" not in rights:  # what was written would be lost
            begin, end = (int(address, 16) for address in addresses.split("-"))
            madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _DONT_NEED)
