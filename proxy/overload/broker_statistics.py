"""Memory and backlog of brokers, as they say over the admin port. No I/O, no clock.

A JVM's raw figures stick high: garbage stays until a collection, and pooled direct memory stays for good. So heap is
the minimum over a window, which is what collections leave, and direct memory is what the allocator has in use.

A thread is no help for large answers: `json` holds the interpreter's lock until it has parsed all. So metrics are
searched for their four numbers, piece by piece, and what is small enough to be parsed has a bound on its values.
"""

import json
import re
from collections import deque
from collections.abc import Iterator
from typing import Final

from proxy.brokers.admin_port import AdminUnavailable
from proxy.overload.bounds import MOST_STATS_VALUES
from proxy.overload.samples import BacklogSample, BrokerSample

# A busy broker collects young objects every few seconds; a longer window would show pressure too late.
WINDOW_SECONDS: Final = 15.0
# A larger number is no size of memory, and no float counts beyond it exactly.
MOST_BYTES: Final = 1 << 53
# Searched in an iteration of the loop: a millisecond, whatever it is.
STEP_BYTES: Final = 16_384
MIB: Final = 1024 * 1024
# A name in a text has a backslash before its quotation marks, also where the text is a name itself.
_METRIC: Final = re.compile(
    rb'(?<!\\)"(jvm_heap_used|jvm_max_memory|jvm_max_direct_memory|brk_default_pool_used)"\s{0,8}:\s{0,8}'
    rb"([0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE]\+?[0-9]{1,3})?)(?=[\s,}])"
)
_LONGEST_METRIC: Final = 96


class BrokerMetrics:
    """The memory in the answer of `broker-stats/metrics`: a list of objects with `metrics`.

    A name that occurs several times counts once.
    """

    def __init__(self) -> None:
        self._found: dict[bytes, int] = {}

    def read(self, body: bytes) -> Iterator[None]:
        """Search an answer in steps of a millisecond."""
        for begin in range(0, len(body), STEP_BYTES):
            for found in _METRIC.finditer(body, begin, begin + STEP_BYTES + _LONGEST_METRIC):
                number = _number(float(found[2]))
                if number is not None:
                    self._found.setdefault(found[1], number)
            yield

    def sample(self) -> BrokerSample:
        """Return what was found; raise AdminUnavailable."""
        used, limit = self._found.get(b"jvm_heap_used"), self._found.get(b"jvm_max_memory")
        if used is None or not limit:
            raise AdminUnavailable("the statistics have no jvm_heap_used and jvm_max_memory")
        # Without the allocator's figure direct memory is not known: what is reserved says nothing.
        direct = (self._found.get(name, 0) for name in (b"brk_default_pool_used", b"jvm_max_direct_memory"))
        return BrokerSample(used, limit, *direct)


def load_report_sample(body: bytes) -> BrokerSample:
    """Return the heap in a load report, whose sizes are MiB; raise AdminUnavailable.

    Its direct memory is what is reserved, and the allocator gives nothing back: that says nothing.
    """
    memory = _parsed(body).get("memory")
    if isinstance(memory, dict):
        used, limit = (_number(memory.get(name), MIB) for name in ("usage", "limit"))
        # A limit below a byte is none, too.
        if used is not None and limit:
            return BrokerSample(used, limit)
    raise AdminUnavailable("the load report has no memory")


def backlog_sample(body: bytes) -> BacklogSample:
    """Return backlog and quota in the statistics of a topic; raise AdminUnavailable."""
    found = _parsed(body)
    backlog = _number(found.get("backlogSize"))
    if backlog is None:
        raise AdminUnavailable("the statistics of a topic have no backlogSize")
    return BacklogSample(backlog, _number(found.get("backlogQuotaLimitSize")) or 0)


def _parsed(body: bytes) -> dict[str, object]:
    # Each value costs time, however short.
    if body.count(b",") + body.count(b"[") + body.count(b"{") > MOST_STATS_VALUES:
        raise AdminUnavailable(f"the statistics have more than {MOST_STATS_VALUES} values")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise AdminUnavailable("the statistics are no JSON") from None
    if not isinstance(found, dict):
        raise AdminUnavailable("the statistics are no object")
    return found


def _number(value: object, unit: int = 1) -> int | None:
    """Return a count of bytes; None for anything that cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST_BYTES:
        return None
    return int(value * unit)


class BrokerMemory:
    """The memory of a broker: `ratio` is the larger of heap and direct memory."""

    def __init__(self) -> None:
        self.ratio = 0.0
        self._heaps: deque[tuple[float, float]] = deque()

    def take(self, now: float, sample: BrokerSample) -> None:
        """Take a sample; of a heap the smallest of the last 15 s counts, which is what collections leave."""
        self._heaps.append((now, sample.heap_used / sample.heap_limit))
        # A clock that went back knows nothing of the time after.
        while not now - WINDOW_SECONDS <= self._heaps[0][0] <= now:
            self._heaps.popleft()
        direct = sample.direct_used / sample.direct_limit if sample.direct_limit > 0 else 0.0
        self.ratio = max(direct, min(heap for _, heap in self._heaps))
