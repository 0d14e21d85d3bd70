from pathlib import Path

import pytest

from proxy.core.process_memory import (
    PAGE_BYTES,
    container_limit_bytes,
    machine_memory_bytes,
    peak_resident_bytes,
    resident_bytes,
)
from tests.support.kernel_files import kernel_files

UNLIMITED_V1 = "9223372036854771712\n"
V2 = {"proc/self/cgroup": "0::/pod/app\n"}
V1 = {"proc/self/cgroup": "4:cpu,cpuacct:/x\n3:memory:/docker/abc\n0::/docker/abc\n"}
LIMIT_V1 = "memory.limit_in_bytes"


def test_resident_and_peak_memory_of_this_process_are_plausible() -> None:
    resident, peak = resident_bytes(), peak_resident_bytes()
    assert resident is not None
    assert peak is not None
    assert 1 << 20 < resident < 1 << 40
    assert peak >= resident // 2


def test_sizes_are_read_in_pages_and_in_kilobytes(tmp_path: Path) -> None:
    files = {
        "proc/self/statm": "9000 250 100 1 0 500 0\n",
        "proc/self/status": "Name:\tpython\nVmPeak:\t  99 kB\nVmHWM:\t  1234 kB\n",
        "proc/meminfo": "MemTotal:       24684084 kB\nMemFree:        1 kB\n",
    }
    paths = kernel_files(tmp_path, files)
    sizes = (resident_bytes(paths), peak_resident_bytes(paths), machine_memory_bytes(paths))
    assert sizes == (250 * PAGE_BYTES, 1234 * 1024, 24_684_084 * 1024)


@pytest.mark.parametrize("files", [{}, {"proc/self/statm": "garbage", "proc/self/status": "VmHWM:\t12 MB\n"}])
def test_a_machine_without_any_of_it_is_no_fault(tmp_path: Path, files: dict[str, str]) -> None:
    paths = kernel_files(tmp_path, files)
    found = (resident_bytes, peak_resident_bytes, machine_memory_bytes, container_limit_bytes)
    assert [each(paths) for each in found] == [None] * 4


# Of two groups on the way up and of paths of the host the processors tell: both read files of groups alike.
@pytest.mark.parametrize(
    ("files", "limit"),
    [
        (V2 | {"cgroup/pod/app/memory.max": "268435456\n"}, 268_435_456),
        (V2 | {"cgroup/pod/app/memory.max": "2000000\n", "cgroup/pod/memory.max": "1000000\n"}, 1_000_000),
        *((V2 | {"cgroup/pod/app/memory.max": text}, None) for text in ("max\n", UNLIMITED_V1, "", "nonsense")),
        # A v1 group beside a v2 tree without memory.
        (V1 | {f"cgroup/memory/docker/abc/{LIMIT_V1}": "777777\n", f"cgroup/memory/{LIMIT_V1}": UNLIMITED_V1}, 777_777),
    ],
)
def test_a_container_has_the_smallest_limit_of_its_groups(
    tmp_path: Path, files: dict[str, str], limit: int | None
) -> None:
    assert container_limit_bytes(kernel_files(tmp_path, files)) == limit
