"""What the kernel says about this process under the names of all Prometheus clients."""

import time

from proxy.app.metrics import process
from proxy.core.process_memory import SYSTEM_PATHS


def test_the_start_is_the_same_whenever_it_is_asked_for() -> None:
    # changes(process_start_time_seconds) is how a restart is told.
    assert len({process.start_time_seconds(SYSTEM_PATHS) for _ in range(1000)}) == 1


def test_the_start_is_before_now_and_after_the_boot() -> None:
    started = process.start_time_seconds(SYSTEM_PATHS)
    assert started is not None
    assert time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) < started < time.time()
    assert process.cpu_seconds() > 0
