"""Processors by affinity and by the quotas of both versions of cgroups."""

from pathlib import Path

import pytest

from proxy.app.processors import usable_processors
from tests.support.kernel_files import kernel_files


def usable(root: Path, files: dict[str, str], allowed: int = 8) -> int:
    return usable_processors(kernel_files(root, files), lambda process: set(range(allowed)))


V2 = {"proc/self/cgroup": "0::/pod/app\n"}
V1 = {"proc/self/cgroup": "5:cpu,cpuacct:/pod/app\n4:memory:/m\n"}


@pytest.mark.parametrize(
    ("files", "processors"),
    [
        ({}, 8),
        (V2, 8),
        (V2 | {"cgroup/pod/app/cpu.max": "max 100000\n"}, 8),
        (V2 | {"cgroup/pod/app/cpu.max": "200000 100000\n"}, 2),
        (V2 | {"cgroup/pod/app/cpu.max": "150000 100000\n"}, 2),
        (V2 | {"cgroup/pod/app/cpu.max": "50000 100000\n"}, 1),
        (V2 | {"cgroup/pod/app/cpu.max": "1600000 100000\n"}, 8),
        (V2 | {"cgroup/pod/app/cpu.max": "garbage"}, 8),
        (V2 | {"cgroup/pod/app/cpu.max": "100000 0\n"}, 8),
        # The smallest on the way up counts, and a path of the host leads to the mount point.
        (V2 | {"cgroup/pod/app/cpu.max": "400000 100000\n", "cgroup/pod/cpu.max": "300000 100000\n"}, 3),
        (V2 | {"cgroup/cpu.max": "500000 100000\n"}, 5),
        (V1 | {"cgroup/cpu/pod/app/cpu.cfs_quota_us": "-1\n", "cgroup/cpu/pod/app/cpu.cfs_period_us": "100000\n"}, 8),
        (V1 | {"cgroup/cpu/cpu.cfs_quota_us": "250000\n", "cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 3),
        (V1 | {"cgroup/cpu/cpu.cfs_quota_us": "250000\n"}, 8),
    ],
)
def test_quota_bounds_the_processors(files: dict[str, str], processors: int, tmp_path: Path) -> None:
    assert usable(tmp_path, files) == processors


def test_affinity_bounds_the_processors(tmp_path: Path) -> None:
    assert usable(tmp_path, V2 | {"cgroup/cpu.max": "500000 100000\n"}, allowed=2) == 2
