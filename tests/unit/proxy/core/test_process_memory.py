import os
from pathlib import Path

import pytest

from proxy.core import process_memory
from proxy.core.process_memory import (
    MemoryPaths,
    container_limit_bytes,
    machine_memory_bytes,
    peak_resident_bytes,
    resident_bytes,
)

UNLIMITED_V1 = "9223372036854771712\n"


def write(root: Path, **files: str) -> MemoryPaths:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return MemoryPaths(process=root / "proc", cgroups=root / "cgroup")


def test_resident_and_peak_memory_of_this_process_are_plausible() -> None:
    resident, peak = resident_bytes(), peak_resident_bytes()
    assert resident is not None
    assert peak is not None
    assert 1 << 20 < resident < 1 << 40
    assert peak >= resident // 2


def test_statm_counts_pages() -> None:
    assert process_memory.parse_statm("9000 250 100 1 0 500 0\n", 4096) == 250 * 4096
    assert process_memory.parse_statm("garbage", 4096) is None
    assert process_memory.parse_statm(None, 4096) is None


def test_the_peak_is_read_in_kilobytes() -> None:
    status = "Name:\tpython\nVmPeak:\t  99 kB\nVmHWM:\t  1234 kB\n"
    assert process_memory.parse_status_field(status, "VmHWM") == 1234 * 1024
    assert process_memory.parse_status_field("VmHWM:\t12 MB\n", "VmHWM") is None


def test_a_v2_group_has_its_own_limit(tmp_path: Path) -> None:
    paths = write(tmp_path, proc__cgroup="0::/pod/app\n")
    paths = write(tmp_path, cgroup__pod__app__memory_dot_max="268435456\n")
    assert container_limit_bytes(paths) == 268_435_456


def test_the_smallest_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    paths = write(
        tmp_path,
        proc__cgroup="0::/pod/app\n",
        cgroup__pod__memory_dot_max="1000000\n",
        cgroup__pod__app__memory_dot_max="2000000\n",
    )
    assert container_limit_bytes(paths) == 1_000_000


def test_a_path_of_the_host_falls_back_to_the_mount_point(tmp_path: Path) -> None:
    paths = write(tmp_path, proc__cgroup="0::/kubepods/burst/pod1\n", cgroup__memory_dot_max="5000\n")
    assert container_limit_bytes(paths) == 5000


def test_a_v1_group_is_found_beside_a_v2_tree_without_memory(tmp_path: Path) -> None:
    paths = write(
        tmp_path,
        proc__cgroup="4:cpu,cpuacct:/x\n3:memory:/docker/abc\n0::/docker/abc\n",
        cgroup__memory__docker__abc__memory_dot_limit_in_bytes="777777\n",
        cgroup__memory__memory_dot_limit_in_bytes=UNLIMITED_V1,
    )
    assert container_limit_bytes(paths) == 777_777


@pytest.mark.parametrize("text", ["max\n", UNLIMITED_V1, "", "nonsense"])
def test_no_limit_is_none(text: str) -> None:
    assert process_memory.parse_limit(text) is None


def test_a_machine_without_any_of_it_is_no_fault(tmp_path: Path) -> None:
    paths = MemoryPaths(process=tmp_path / "absent", cgroups=tmp_path / "absent")
    assert (resident_bytes(paths), peak_resident_bytes(paths), container_limit_bytes(paths)) == (None,) * 3
    assert os.sysconf("SC_PAGE_SIZE") == process_memory.PAGE_BYTES


def test_the_memory_of_the_machine_is_read_beside_the_process(tmp_path: Path) -> None:
    process = tmp_path / "proc" / "self"
    process.mkdir(parents=True)
    paths = MemoryPaths(process, tmp_path)
    assert machine_memory_bytes(paths) is None
    (tmp_path / "proc" / "meminfo").write_text("MemTotal:       24684084 kB\nMemFree:        1 kB\n")
    assert machine_memory_bytes(paths) == 24_684_084 * 1024
