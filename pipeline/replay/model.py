"""What is replayed and what comes out: the limits, one scenario, a trace as arrays, and the outcome of each request.

Times are int64 microseconds, sizes int64 bytes. A trace is one proxy's requests in the order of their arrival, each
with what it needed and how long others kept it; the limiter's waits are what the replay finds out. No pyspark here.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["MIB", "NEVER", "Fairness", "Limits", "Outcome", "Result", "Scenario", "Trace"]

MIB: Final = 1024 * 1024
NEVER: Final = -1
Fairness = Literal["fifo", "connection", "principal", "tenant", "namespace"]
Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Int8s = NDArray[np.int8]


class Outcome(IntEnum):
    """How a request ended in the replay; the names are those of the event schema's outcomes and stages."""

    OK = 0
    TIMEOUT_HEAP = 1
    TIMEOUT_HEAP_UPDATE = 2
    TIMEOUT_DIRECT = 3
    TIMEOUT_OTHER = 4  # its own clock ended while it waited for something that is no memory
    QUEUE_FULL_HEAP = 5
    QUEUE_FULL_DIRECT = 6
    OVERSIZE = 7
    CANCELLED = 8
    FAILED = 9


@dataclass(frozen=True, slots=True)
class Limits:
    """The keys of proxy.conf that the limiter goes by; 0 bytes is no limit, a queue of 0 no bound."""

    heap_bytes: int = 100 * MIB
    direct_bytes: int = 100 * MIB
    heap_timeout_us: int = 25_000_000
    direct_timeout_us: int = 25_000_000
    heap_queue: int = 10_000
    direct_queue: int = 10_000
    request_timeout_us: int = 28_000_000
    max_outstanding_per_broker: int = 64
    coalescing: bool = True
    fairness: Fairness = "fifo"
    key_cap_percent: int = 100


@dataclass(frozen=True, slots=True)
class Scenario:
    """One question: these limits, `load` times the arrivals (time runs faster), shared by `fleet` times the proxies."""

    limits: Limits
    load: int = 1
    fleet: int = 1


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests of one proxy, in the order of arrival; all arrays have the same length.

    `question` numbers equal requests (those that may share an answer), `share` the keys of the fairness in question,
    `client` connections, `broker` brokers. `hold_us` is the time between the answer's memory and having it whole,
    `cancel_us` the time from arrival to the client's leaving, or NEVER.
    """

    arrival_us: Int64s
    question: Int32s
    share: Int32s
    client: Int32s
    broker: Int32s
    estimate_bytes: Int64s
    heap_bytes: Int64s
    direct_bytes: Int64s
    upstream_us: Int64s
    hold_us: Int64s
    write_us: Int64s
    cancel_us: Int64s

    def __len__(self) -> int:
        return len(self.arrival_us)


@dataclass(frozen=True, slots=True)
class Result:
    """What became of each request: its outcome, the waits that led there, and when it ended."""

    outcome: Int8s
    heap_wait_us: Int64s
    heap_update_wait_us: Int64s
    direct_wait_us: Int64s
    end_us: Int64s
    peak_heap_bytes: int
    peak_direct_bytes: int
    questions: int
