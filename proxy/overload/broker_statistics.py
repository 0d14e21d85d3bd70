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

from proxy.core.errors import ProxyError
from proxy.overload.bounds import MOST_STATS_VALUES
from proxy.overload.samples import BacklogSample, BrokerSample

# A busy broker collects young objects every few seconds; a longer window would show pressure too late.
WINDOW_SECONDS: Final = 15.0
MOST_IN_WINDOW: Final = 256
# A larger number is no size of memory, and no float counts beyond it exactly.
MOST_BYTES: Final = 1 << 53
# Searched in an iteration of the loop: a millisecond, whatever it is.
STEP_BYTES: Final = 16_384
MIB: Final = 1024 * 1024
# A name in a text has a backslash before its quotation marks, also where the text is a name itself.
_METRIC: Final = re.compile(
    rb'(?<!\\)"(jvm_heap_used|jvm_max_memory|jvm_max_direct_memory|brk_default_pool_used)"\s{0,8}:\s{0,8}'
    rb"([0-9][0-9.eE+]{0,30})(?=[\s,}])"
)
_LONGEST_METRIC: Final = 96


class StatisticsUnavailable(ProxyError):
    """A broker gave no statistics that can be used; the text says why."""


class StatisticsRefused(StatisticsUnavailable):
    """The role of the proxy has no right to these statistics."""


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
                number = _number(_float(found[2]))
                if number is not None:
                    self._found.setdefault(found[1], number)
            yield

    def sample(self) -> BrokerSample:
        """Return what was found; raise StatisticsUnavailable."""
        found = self._found
        if b"jvm_heap_used" not in found or not found.get(b"jvm_max_memory"):
            raise StatisticsUnavailable("the statistics have no jvm_heap_used and jvm_max_memory")
        # Without the allocator's figure direct memory is not known: what is reserved says nothing.
        used = found.get(b"brk_default_pool_used", 0)
        return BrokerSample(
            found[b"jvm_heap_used"], found[b"jvm_max_memory"], used, found.get(b"jvm_max_direct_memory", 0)
        )


def load_report_sample(body: bytes) -> BrokerSample:
    """Return the memory in a load report, whose sizes are MiB; raise StatisticsUnavailable."""
    found = _parsed(body)
    memory, direct = _usage(found.get("memory")), _usage(found.get("directMemory"))
    if memory is None:
        raise StatisticsUnavailable("the load report has no memory")
    # Direct memory is what is reserved there, and the allocator gives nothing back: only the heap counts.
    return BrokerSample(*memory, 0, direct[1] if direct else 0)


def _usage(entry: object) -> tuple[int, int] | None:
    if not isinstance(entry, dict):
        return None
    usage, limit = (_number(entry.get(name), MIB) for name in ("usage", "limit"))
    # A limit below a byte is none, too.
    return (usage, limit) if usage is not None and limit else None


def backlog_sample(body: bytes) -> BacklogSample:
    """Return backlog and quota in the statistics of a topic; raise StatisticsUnavailable."""
    found = _parsed(body)
    backlog = _number(found.get("backlogSize"))
    if backlog is None:
        raise StatisticsUnavailable("the statistics of a topic have no backlogSize")
    return BacklogSample(backlog, _number(found.get("backlogQuotaLimitSize")) or 0)


def _parsed(body: bytes) -> dict[str, object]:
    # Each value costs time, however short.
    if body.count(b",") + body.count(b"[") + body.count(b"{") > MOST_STATS_VALUES:
        raise StatisticsUnavailable(f"the statistics have more than {MOST_STATS_VALUES} values")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise StatisticsUnavailable("the statistics are no JSON") from None
    if not isinstance(found, dict):
        raise StatisticsUnavailable("the statistics are no object")
    return found


def _float(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _number(value: object, unit: int = 1) -> int | None:
    """Return a count of bytes; None for anything that cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST_BYTES:
        return None
    return int(value * unit)


class BrokerMemory:
    """The memory of a broker: `ratio` is the larger of heap and direct memory."""

    def __init__(self) -> None:
        self.ratio = 0.0
        self._heaps: deque[tuple[float, float]] = deque(maxlen=MOST_IN_WINDOW)

    def take(self, now: float, sample: BrokerSample) -> None:
        """Take a sample; of a heap the smallest of the last 15 s counts, which is what collections leave."""
        self._heaps.append((now, sample.heap_used / sample.heap_limit))
        # A clock that went back knows nothing of the time after.
        while not now - WINDOW_SECONDS <= self._heaps[0][0] <= now:
            self._heaps.popleft()
        direct = sample.direct_used / sample.direct_limit if sample.direct_limit > 0 else 0.0
        self.ratio = max(direct, min(heap for _, heap in self._heaps))
