"""The replay's input and result: the limits, a trace as arrays, and the outcome of each request.

Times are int64 microseconds, sizes int64 bytes. A trace is one proxy's requests in the order of their arrival, each
with what it needed and how long others kept it; the limiter's waits are what the replay finds out. No pyspark here.

Events of the same microsecond happen in the order of `Phase`: an answer that is there lets others in before anybody is
refused, and a request that arrives finds all that decided. The kernel keeps to this order, and so does the test that
drives the real limiter. The numbers of the rules are those of the proxy and its limiter.
"""

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

MIB: Final = 1024 * 1024
NEVER: Final = -1
MILLION: Final = 1_000_000
LISTS_AT_ONCE: Final = 2  # lists of one connection
PAYERS_ASKED: Final = 64  # members of a group, for one whose key is not at its cap
GRANTS_AT_ONCE: Final = 64  # to those that wait, in one step of a semaphore
QUANTA_PER_LIMIT: Final = 1024  # rounds of the turns of keys, while they spend a limit
MOST_IDLE_DEBTORS: Final = 4096  # keys that owe while nobody waits with them
WAITS: Final = ("heap", "heap_update", "direct", "total")  # the waits counted by length, see `Aggregates.waits`
Fairness = Literal["fifo", "connection", "principal", "tenant", "namespace"]
Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Int8s = NDArray[np.int8]


class Outcome(IntEnum):
    """The end of a request in the replay; the names are those of the event schema's outcomes and stages."""

    OK = 0
    TIMEOUT_HEAP = 1
    TIMEOUT_HEAP_UPDATE = 2
    TIMEOUT_DIRECT = 3
    TIMEOUT_OTHER = 4  # the request's own clock ended while it waited for something that is no memory
    QUEUE_FULL_HEAP = 5
    QUEUE_FULL_DIRECT = 6
    OVERSIZE = 7
    CANCELLED = 8
    FAILED = 9


class Phase(IntEnum):
    """The order of what happens in the same microsecond; within a phase what was begun first, or asked first."""

    DONE = 0  # an answer begins, is whole, or has been written
    MEMORY_DEADLINE = 1  # ends of waits for heap memory, in a broker's line or the common one, in the order they began
    DIRECT_DEADLINE = 2
    REQUEST_DEADLINE = 3
    LEAVING = 4
    ARRIVAL = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """The keys of proxy.conf that the limiter goes by; 0 bytes is no limit, a queue of 0 no bound.

    Without `max_answer_bytes` answers may be as large as the smaller of both limits, as in the proxy.
    """

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
    max_answer_bytes: int | None = None

    @property
    def answer_limit_bytes(self) -> int:
        """Return the largest answer that is read, in bytes; 0 is no limit."""
        if self.max_answer_bytes is not None:
            return self.max_answer_bytes
        return min((limit for limit in (self.heap_bytes, self.direct_bytes) if limit), default=0)


class LimitKey(NamedTuple):
    """Where a limit comes from and goes to: the field of events, the key of proxy.conf, and the unit of the key."""

    event: str
    key: str
    unit: int = 1


# By the fields of `Limits`.
LIMIT_KEYS: Final = {
    "heap_bytes": LimitKey("heap_limit_bytes", "maxTopicListInFlightHeapMemSizeMB", MIB),
    "direct_bytes": LimitKey("direct_limit_bytes", "maxTopicListInFlightDirectMemSizeMB", MIB),
    "heap_timeout_us": LimitKey("heap_timeout_ms", "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis", 1000),
    "direct_timeout_us": LimitKey(
        "direct_timeout_ms", "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis", 1000
    ),
    "heap_queue": LimitKey("heap_queue_max", "maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize"),
    "direct_queue": LimitKey("direct_queue_max", "maxTopicListInFlightDirectMemSizePermitsAcquireQueueSize"),
    "request_timeout_us": LimitKey("request_timeout_ms", "topicListRequestTimeoutMillis", 1000),
    "max_outstanding_per_broker": LimitKey("max_outstanding_per_broker", "topicListMaxOutstandingPerBroker"),
    "coalescing": LimitKey("coalescing", "topicListCoalescingEnabled"),
    "fairness": LimitKey("fairness", "topicListFairness"),
    "key_cap_percent": LimitKey("key_cap_percent", "topicListMaxMemoryPercentPerKey"),
}


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests of one proxy, in the order of arrival; all arrays have the same length.

    `question` numbers equal requests (those that may share an answer), `share` the keys of the fairness in question,
    `client` connections, `broker` brokers; all count from 0, without gaps if memory matters. `hold_us` is the time
    between the answer's memory and having it whole, `cancel_us` the time from arrival to the client's leaving, or
    NEVER. Equal requests have the same broker. A group needs what its first request needed, but each of its members
    its own `write_us`. Direct memory of a group is held until its last member ends. Where there is but one when it is
    granted, the proxy gives it back piece by piece: whole for `direct_us` it would make the same byte-seconds, so that
    part of `write_us` is the part of it that counts as held while it is written.
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
    direct_us: Int64s
    cancel_us: Int64s

    def __len__(self) -> int:
        return len(self.arrival_us)

    @property
    def kept_ppm(self) -> Int64s:
        """Return what part of a list for one client counts as held while it is written, in millionths."""
        part = -(-self.direct_us * MILLION // np.maximum(1, self.write_us))
        return np.where(self.write_us > 0, part, MILLION)

    def check(self) -> None:
        """Raise ValueError if the arrays cannot be a trace."""
        for field in fields(self):
            values = getattr(self, field.name)
            if values.shape != self.arrival_us.shape or values.ndim != 1:
                raise ValueError(f"{field.name}: expected shape {self.arrival_us.shape}, got {values.shape}")
            lowest = NEVER if field.name == "cancel_us" else 0
            if len(self) and values.min() < lowest:
                raise ValueError(f"{field.name}: expected at least {lowest}, got {values.min()}")
        if (late := np.flatnonzero(self.direct_us > self.write_us)).size:
            got, most = self.direct_us[late[0]], self.write_us[late[0]]
            raise ValueError(f"direct_us: expected at most the write_us of the request, {most}, got {got}")
        if (self.arrival_us[1:] < self.arrival_us[:-1]).any():
            raise ValueError("arrival_us: expected the order of arrival, got a request before an earlier one")


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of each request, the waits that led there, and when it ended.

    A wait is the member's part of its group's wait: a request that joins a group that waits for memory already has
    waited since it joined. Waiting in the line of a broker for heap memory is waiting for heap memory.
    """

    outcome: Int8s
    heap_wait_us: Int64s
    heap_update_wait_us: Int64s
    direct_wait_us: Int64s
    end_us: Int64s
    peak_heap_bytes: int
    peak_direct_bytes: int
    questions: int


@dataclass(frozen=True, slots=True)
class Aggregates:
    """The outcomes of all requests of a scenario that are no warm-up, each counted once however it ended.

    `outcomes` has a count for each `Outcome`; `waits` a row for each of `WAITS` with a count for each bucket of
    `pipeline.core.buckets`. The total wait is that of answered requests only: their life without what the broker,
    reading and writing took.
    """

    outcomes: Int64s
    waits: Int64s
    peak_heap_bytes: int
    peak_direct_bytes: int
    questions: int
    last_end_us: int


def rounded_up(size_bytes: float) -> int:
    """Round a size up to whole MiB, the unit of the keys; at least one."""
    return max(1, -int(-size_bytes // MIB)) * MIB
