"""Memory and backlog of brokers, as they say over the admin port: parse and smooth. No I/O, no clock.

A JVM's raw figures stick high: garbage stays until a collection, and pooled direct memory stays for good. So heap is
the minimum over a window, which is what collections leave, and direct memory is what the allocator has in use.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeGuard

from proxy.core.errors import ProxyError
from proxy.overload.samples import BacklogSample, BrokerSample

# A busy broker collects young objects every few seconds; a longer window would show pressure too late.
WINDOW_SECONDS: Final = 15.0
MOST_IN_WINDOW: Final = 256
# A larger number is no size of memory, and no float counts beyond it exactly.
MOST_BYTES: Final = 1 << 53


class StatisticsUnavailable(ProxyError):
    """A broker gave no statistics that can be used; the text says why."""


class StatisticsRefused(StatisticsUnavailable):
    """The role of the proxy has no right to these statistics."""


def broker_sample(body: bytes) -> BrokerSample:
    """Return the memory in the answer of `broker-stats/metrics`; raise StatisticsUnavailable.

    The answer is a list of objects with `metrics`; a name that occurs in several counts once.
    """
    found: dict[str, int] = {}
    for entry in _list(_parsed(body)):
        metrics = entry.get("metrics") if isinstance(entry, dict) else None
        if isinstance(metrics, dict):
            for name in _NAMES:
                number = _number(metrics.get(name))
                if number is not None:
                    found.setdefault(name, number)
    if "jvm_heap_used" not in found or not found.get("jvm_max_memory"):
        raise StatisticsUnavailable("the statistics have no jvm_heap_used and jvm_max_memory")
    # Without the allocator's figure direct memory is not known: what is reserved says nothing.
    used = found.get("brk_default_pool_used", 0)
    return BrokerSample(found["jvm_heap_used"], found["jvm_max_memory"], used, found.get("jvm_max_direct_memory", 0))


_NAMES: Final = ("jvm_heap_used", "jvm_max_memory", "jvm_max_direct_memory", "brk_default_pool_used")


def load_report_sample(body: bytes) -> BrokerSample:
    """Return the memory in a load report, whose sizes are MiB; raise StatisticsUnavailable."""
    found = _parsed(body)
    memory = _usage(found, "memory")
    direct = _usage(found, "directMemory")
    if memory is None:
        raise StatisticsUnavailable("the load report has no memory")
    # Direct memory is what is reserved there, and the allocator gives nothing back: only the heap counts.
    return BrokerSample(memory[0], memory[1], 0, direct[1] if direct else 0)


def _usage(found: object, name: str) -> tuple[int, int] | None:
    entry = found.get(name) if isinstance(found, dict) else None
    if not isinstance(entry, dict):
        return None
    usage, limit = entry.get("usage"), entry.get("limit")
    if not _is_real(usage) or not _is_real(limit) or limit <= 0:
        return None
    return int(usage * 1024 * 1024), int(limit * 1024 * 1024)


def _is_real(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MOST_BYTES


def backlog_sample(body: bytes) -> BacklogSample:
    """Return backlog and quota in the statistics of a topic; raise StatisticsUnavailable."""
    found = _parsed(body)
    if not isinstance(found, dict):
        raise StatisticsUnavailable("the statistics of a topic are no object")
    backlog = _number(found.get("backlogSize"))
    if backlog is None:
        raise StatisticsUnavailable("the statistics of a topic have no backlogSize")
    quota = found.get("backlogQuotaLimitSize")
    return BacklogSample(backlog, _number(quota) or 0)


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise StatisticsUnavailable("the statistics are no JSON") from None


def _list(found: object) -> Sequence[Any]:
    if not isinstance(found, list):
        raise StatisticsUnavailable("the statistics are no list")
    return found


def _number(value: object) -> int | None:
    """Return a count of bytes; None for anything that cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < MOST_BYTES else None


class LeastOverTime:
    """The smallest of the numbers of the last 15 seconds, which for a heap is what collections leave."""

    __slots__ = ("_rising",)

    def __init__(self) -> None:
        # Times and numbers; each number is above the one before, so that the first is the smallest.
        self._rising: deque[tuple[float, float]] = deque()

    def add(self, now: float, number: float) -> float:
        """Add a number and return the smallest of the window."""
        rising = self._rising
        if rising and now < rising[-1][0]:
            # The clock went back: nothing known is of this time.
            rising.clear()
        while rising and rising[-1][1] >= number:
            rising.pop()
        rising.append((now, number))
        while rising[0][0] < now - WINDOW_SECONDS or len(rising) > MOST_IN_WINDOW:
            rising.popleft()
        return rising[0][1]


class BrokerMonitor:
    """The memory signal of the brokers: the fullest of them; the last value is kept for 5 samples that fail."""

    def __init__(self, samples_kept: int) -> None:
        self.failures = 0
        self._kept = samples_kept
        self._heaps: dict[str, LeastOverTime] = {}
        self._failed_in_a_row = 0
        self._last: float | None = None

    def take(self, now: float, samples: Mapping[str, BrokerSample]) -> float | None:
        """Return the ratio of the fullest broker, by address; an answer without brokers fails."""
        if not samples:
            return self.failed()
        self._failed_in_a_row = 0
        ratios = []
        for address, sample in samples.items():
            heap = self._heaps.setdefault(address, LeastOverTime()).add(now, sample.heap_used / sample.heap_limit)
            direct = sample.direct_used / sample.direct_limit if sample.direct_limit > 0 else 0.0
            ratios.append(max(heap, direct))
        self._last = max(ratios)
        return self._last

    def failed(self) -> float | None:
        """Return the last ratio for 5 samples that fail, then None."""
        self.failures += 1
        self._failed_in_a_row += 1
        if self._failed_in_a_row > self._kept:
            self._last = None
            self._heaps.clear()
        return self._last


class BacklogBook:
    """The backlogs of topics: which to ask for next, and what is known. Three failures in a row make one unknown."""

    def __init__(self, most_topics: int) -> None:
        self.failures = 0
        self._most = most_topics
        self._known: dict[str, BacklogSample] = {}
        self._failed: dict[str, int] = {}
        # In the order of asking: the topic that was asked longest ago is first.
        self._order: dict[str, None] = {}

    @property
    def known(self) -> Mapping[str, BacklogSample]:
        """Return the last backlog of each topic."""
        return self._known

    def seen(self, topics: Sequence[str]) -> None:
        """Replace the topics that are asked for, the most important first; the others are forgotten."""
        wanted = dict.fromkeys(topics[: self._most])
        self._order = {topic: None for topic in self._order if topic in wanted} | wanted
        for gone in [topic for topic in (*self._known, *self._failed) if topic not in wanted]:
            self._known.pop(gone, None)
            self._failed.pop(gone, None)

    def next(self) -> str | None:
        """Return the topic to ask for next; None without any."""
        topic = next(iter(self._order), None)
        if topic is not None:
            self._order[topic] = self._order.pop(topic)
        return topic

    def take(self, topic: str, sample: BacklogSample) -> None:
        """Record the backlog of a topic that is still asked for."""
        self._failed.pop(topic, None)
        if topic in self._order:
            self._known[topic] = sample

    def failed(self, topic: str) -> None:
        """Record that a topic's statistics did not come; after three failures its backlog is not known."""
        self.failures += 1
        if topic in self._order:
            self._failed[topic] = self._failed.get(topic, 0) + 1
            if self._failed[topic] >= MOST_FAILURES:
                self._known.pop(topic, None)


MOST_FAILURES: Final = 3
