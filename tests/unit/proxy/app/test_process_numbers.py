"""What the kernel says about this process under the names of all Prometheus clients."""

import os
import sys
import time

import pytest

from proxy.app.metrics import process
from proxy.core.process_memory import PAGE_BYTES, SYSTEM_PATHS, MemoryPaths
from tests.support.programs import succeeded
from tests.support.proxies.metric_sources import known_process


def test_the_start_is_the_same_whenever_it_is_asked_for() -> None:
    # changes(process_start_time_seconds) is how a restart is told.
    assert len({process.start_time_seconds(SYSTEM_PATHS) for _ in range(1000)}) == 1


def test_the_kernel_is_asked_for_what_all_prometheus_clients_show(tmp_path_factory: pytest.TempPathFactory) -> None:
    paths = known_process(tmp_path_factory.mktemp("kernel"))
    assert process.virtual_bytes(paths) == 900 * PAGE_BYTES
    # The fields behind a name that holds blanks and parentheses.
    began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + 100 / os.sysconf("SC_CLK_TCK")
    assert process.start_time_seconds(paths) == pytest.approx(began, abs=5)
    assert process.cpu_seconds() > 0


def test_a_machine_without_these_files_is_no_fault(tmp_path_factory: pytest.TempPathFactory) -> None:
    paths = MemoryPaths(tmp_path_factory.mktemp("none"), tmp_path_factory.mktemp("neither"))
    assert (process.virtual_bytes(paths), process.start_time_seconds(paths), process.open_fds(paths)) == (None,) * 3


def test_descriptors_are_counted() -> None:
    program = (
        "import os; from proxy.core.process_memory import SYSTEM_PATHS;"
        "from proxy.app.metrics.process import open_fds;"
        "before = open_fds(SYSTEM_PATHS); kept = [os.dup(0) for _ in range(7)]; print(open_fds(SYSTEM_PATHS) - before)"
    )
    assert succeeded([sys.executable, "-c", program]) == "7\n"
