"""worker/engines/mapped.py: pages of a mapped file no longer count, and are there again when they are looked at."""

import mmap
import sys
from pathlib import Path

import pytest

from worker.engines.mapped import give_back

SIZE = 4 << 20

pytestmark = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason=f"{sys.platform} has no /proc")


def resident_kb(file: Path) -> int:
    lines = iter(Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.endswith(str(file)):
            return next(int(fact.split()[1]) for fact in lines if fact.startswith("Rss:"))
    raise LookupError(file)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """In a folder with a link to it, as the hub's cache has."""
    file = tmp_path / "blobs" / "0123"
    file.parent.mkdir()
    file.write_bytes(bytes(range(256)) * (SIZE // 256))
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "model.bin").symlink_to(file)
    return file


def test_pages_are_given_back_and_come_again(weights: Path, tmp_path: Path) -> None:
    with weights.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        before = bytes(mapped)
        assert resident_kb(weights) == SIZE >> 10
        give_back(tmp_path / "snapshot")
        assert resident_kb(weights) == 0
        assert bytes(mapped) == before


def test_what_is_written_to_is_left_alone(weights: Path) -> None:
    with weights.open("r+b") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        mapped[0] = 77
        give_back(weights.parent)
        assert mapped[0] == 77


def test_other_files_are_left_alone(weights: Path, tmp_path: Path) -> None:
    with weights.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[SIZE - 1] == 255
        (tmp_path / "elsewhere").mkdir()
        give_back(tmp_path / "elsewhere")
        assert resident_kb(weights) > 0
