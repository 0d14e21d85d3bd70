"""Own how long a test waits before it fails: long enough for an idle machine many times over, longer on a busy one.

Rule: these times end a test that waits for ever and decide nothing else. A test that can only run at some speed has all
its times, those of the proxy too, from `patient`, so that they keep their proportions. There is one factor: how much
slower than idle the machine is, from the time that a fixed piece of work takes and from the load average.
"""

import asyncio
import functools
import os
from time import perf_counter
from typing import Final

from proxy.config.config import Config

# Far above what any step of a test takes on an idle machine: only a test that fails waits as long.
PATIENCE_SECONDS: Final = 20.0
MOST: Final = 12.0
_WORK: Final = 300_000
# With their defaults they are above what a step of a test takes on an idle machine.
_CLOCKS: Final = frozenset(
    (
        "brokerProxyConnectTimeoutMs",
        "handshakeTimeoutMillis",
        "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis",
        "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis",
        "topicListRequestTimeoutMillis",
        "topicListWriteStallTimeoutMillis",
    )
)
# What the work takes on an idle machine with cores of 3 GHz.
_IDLE_SECONDS: Final = 0.02


def factor() -> float:
    """Return by what the times of an idle machine are to be multiplied now: at least 1."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return scaled_by(_work_seconds() / _IDLE_SECONDS, load)


def scaled_by(slowness: float, load: float) -> float:
    """Return the factor for a machine so many times slower than an idle one, with so many busy processes per core."""
    return min(max(1.0, slowness, load), MOST)


def patient(seconds: float) -> float:
    """Return how long to wait, on this machine, for what takes less than `seconds` on an idle one."""
    return seconds * factor()


def patient_millis(millis: int) -> int:
    """Return the same of milliseconds, as keys of the proxy and clients of Pulsar ask for them."""
    return round(patient(millis))


def patient_clocks() -> dict[str, int]:
    """Return the clocks of a proxy that end what takes too long, scaled for this machine."""
    declared = Config.keys()
    return {key.name: patient_millis(key.default) for key in declared if key.name in _CLOCKS}


def in_time(seconds: float = PATIENCE_SECONDS) -> asyncio.Timeout:
    """Return a block that ends with TimeoutError when its patience is over."""
    return asyncio.timeout(patient(seconds))


@functools.cache
def _work_seconds() -> float:
    began = perf_counter()
    sum(number * number for number in range(_WORK))
    return perf_counter() - began
