import asyncio
import subprocess
import sys
import time

import pytest

from proxy.app.metrics import process
from proxy.app.metrics.lag import PERIOD_SECONDS, WINDOW_SECONDS, LoopLag
from proxy.core.process_memory import PAGE_BYTES, MemoryPaths
from tests.support.loops.loops import VirtualLoop, run_virtual
from tests.support.proxies.metric_sources import known_process


def stand_still(seconds: float) -> None:
    """Let the virtual time pass in the middle of a step, as a busy loop does."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop._selector_in_use.now += seconds


def test_a_loop_with_nothing_to_do_is_on_time() -> None:
    async def main() -> None:
        lag = LoopLag(asyncio.get_running_loop())
        lag.start()
        await asyncio.sleep(PERIOD_SECONDS * 50.5)
        lag.stop()
        assert lag.durations.count == 50
        assert lag.durations.quantiles(1.0)[0] < 1e-6

    run_virtual(main())


def test_a_step_that_takes_long_is_seen_as_lag_and_forgotten_after_the_window() -> None:
    async def main() -> None:
        lag = LoopLag(asyncio.get_running_loop())
        lag.start()
        await asyncio.sleep(PERIOD_SECONDS / 2)
        stand_still(2.0)
        await asyncio.sleep(PERIOD_SECONDS / 2)
        # Due half a period after the step began.
        assert lag.durations.quantiles(1.0)[0] == pytest.approx((2.0 - PERIOD_SECONDS / 2) * 1000)
        await asyncio.sleep(WINDOW_SECONDS + 1)
        assert lag.durations.quantiles(1.0)[0] < 1e-6
        lag.stop()
        lag.stop()
        samples = lag.durations.count
        await asyncio.sleep(10)
        assert lag.durations.count == samples

    run_virtual(main())


def test_the_kernel_is_asked_for_what_all_prometheus_clients_show(tmp_path_factory: pytest.TempPathFactory) -> None:
    paths = known_process(tmp_path_factory.mktemp("kernel"))
    assert process.virtual_bytes(paths) == 900 * PAGE_BYTES
    # The fields behind a name that holds blanks and parentheses.
    began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + 100 / process._TICKS_PER_SECOND
    assert process.start_time_seconds(paths) == pytest.approx(began, abs=5)
    assert process.open_fds(MemoryPaths()) is not None
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
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout == "7\n"
