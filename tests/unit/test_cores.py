"""worker/cores.py: the cgroup's quota and the affinity mask, never the host's cores."""

import os
from pathlib import Path

import pytest

from worker.cores import share_of_cores, usable_cores

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no affinity mask")


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


def v2(root: Path, quota: str, group: str = "") -> Path:
    path = root / "sys/fs/cgroup" / group / "cpu.max"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(quota, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000\n", 8), ("200000 100000\n", 2), ("250000 100000\n", 2), ("50000 100000\n", 1), ("9900000 100000", 8)],
)
def test_cgroup_v2(tmp_path: Path, quota: str, cores: int) -> None:
    assert usable_cores(v2(tmp_path, quota)) == cores


def test_cgroup_v2_of_a_service_and_its_parent(tmp_path: Path) -> None:
    v2(tmp_path, "max 100000", "app.slice/fillmask.service")
    v2(tmp_path, "300000 100000", "app.slice")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/app.slice/fillmask.service\n", encoding="utf-8")
    assert usable_cores(tmp_path) == 3


@pytest.mark.parametrize(("quota", "cores"), [("-1", 8), ("400000", 4), ("1000", 1)])
@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_cgroup_v1(tmp_path: Path, mount: str, quota: str, cores: int) -> None:
    folder = tmp_path / "sys/fs/cgroup" / mount
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text(quota, encoding="utf-8")
    (folder / "cpu.cfs_period_us").write_text("100000", encoding="utf-8")
    assert usable_cores(tmp_path) == cores


def test_no_cgroup_at_all_and_this_very_machine(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == 8
    assert 1 <= usable_cores() <= 8


def test_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert usable_cores(v2(tmp_path, "200000 100000")) == 1


@pytest.mark.parametrize(("workers", "threads"), [(1, 6), (2, 3), (4, 1), (50, 1), (0, 6)])
def test_shares_fit_together(tmp_path: Path, workers: int, threads: int) -> None:
    assert share_of_cores(workers, v2(tmp_path, "600000 100000")) == threads
