"""How many cores this process may really use. It reads cgroup files and the affinity mask; it sets nothing.

os.cpu_count() tells the host's cores: in a container with a quota of two, sixty-four threads would take turns on two.
"""

import math
import os
from pathlib import Path

_CGROUP_V2 = Path("sys/fs/cgroup")
_CGROUP_V1 = ("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct")


def usable_cores(root: Path = Path("/")) -> int:
    """The affinity mask or the cgroup quota, whichever is less, at least 1. `root` is / but in tests.

    A quota of 2.5 cores counts as 2: a third thread would be throttled, and the other two wait for it.
    """
    return max(1, int(min(_affinity(), _quota(root))))


def share_of_cores(workers_on_host: int, root: Path = Path("/")) -> int:
    """The threads that each of so many workers may use, so that all of them together fit; at least 1."""
    return max(1, usable_cores(root) // max(1, workers_on_host))


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS and Windows have no mask to ask for


def _quota(root: Path) -> float:
    """Cores that the strictest of this process's cgroups grants, or infinity."""
    return min((*_quotas_v2(root), *_quotas_v1(root)), default=math.inf)


def _quotas_v2(root: Path) -> list[float]:
    """A parent's limit binds its children, so every level from the own group up to the mount counts."""
    mount = root / _CGROUP_V2
    group = mount / _own_group(root)
    quotas = []
    for folder in (group, *group.parents):
        words = _words(folder / "cpu.max")  # "max 100000" or "200000 100000"
        if len(words) == 2 and words[0] != "max":
            quotas.append(int(words[0]) / int(words[1]))
        if folder == mount:
            break
    return quotas


def _own_group(root: Path) -> str:
    """The path in the line `0::/path` of /proc/self/cgroup; in a container with its own namespace it is /."""
    for line in _words(root / "proc/self/cgroup"):
        if line.startswith("0::/") and ".." not in line:
            return line.removeprefix("0::/")
    return ""


def _quotas_v1(root: Path) -> list[float]:
    quotas = []
    for mount in _CGROUP_V1:
        quota = _words(root / mount / "cpu.cfs_quota_us")
        period = _words(root / mount / "cpu.cfs_period_us")
        if quota and period and int(quota[0]) > 0:  # -1: no limit
            quotas.append(int(quota[0]) / int(period[0]))
    return quotas


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split()
    except OSError:
        return []
