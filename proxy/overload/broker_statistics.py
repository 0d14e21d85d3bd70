"""Memory and backlog of brokers, as they say over the admin port: parse and smooth. No I/O, no clock.

A JVM's raw figures stick high: garbage stays until a collection, and pooled direct memory stays for good. So heap is
the minimum over a window, which is what collections leave, and direct memory is what the allocator has in use.

A thread is no help: `json` holds the interpreter's lock until it has parsed all that it was given. So metrics are
parsed a few entries at a time, and what is small enough to be parsed at once has a bound on its values, too.
"""

import codecs
import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeGuard

from proxy.core.errors import ProxyError
from proxy.overload.bounds import MOST_STATS_VALUES
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


class BrokerMetrics:
    """The memory in the answer of `broker-stats/metrics`: a list of objects with `metrics`.

    A name that occurs in several entries counts once.
    """

    def __init__(self) -> None:
        self._found: dict[str, int] = {}
        self._decode = json.JSONDecoder().raw_decode
        self._begun = False
        self._ended = False
        # Whether the list may end here: at its beginning, not behind a comma.
        self._may_end = True

    def read(self, body: bytes) -> Iterator[None]:
        """Parse an answer in steps of a millisecond; raise StatisticsUnavailable."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        left = ""
        for begin in range(0, len(body), STEP_BYTES):
            piece = body[begin : begin + STEP_BYTES]
            if _values_in(piece) > STEP_VALUES:
                raise StatisticsUnavailable(f"the statistics have more than {STEP_VALUES} values in {STEP_BYTES} bytes")
            try:
                left += decoder.decode(piece)
            except UnicodeDecodeError:
                raise StatisticsUnavailable(_NO_JSON) from None
            at = 0
            while (end := self._next_entries(left, at)) != at:
                at = end
                yield
            left = left[at:]
            if len(left) > LONGEST_ENTRY:
                raise StatisticsUnavailable(f"an entry of the statistics has more than {LONGEST_ENTRY} characters")
            yield
        if left or not self._ended:
            raise StatisticsUnavailable(_NO_JSON)

    def _next_entries(self, text: str, at: int) -> int:
        """Take some entries that are there as a whole, with what follows each; return where the next begins."""
        for _ in range(STEP_ENTRIES):
            at = _behind_space(text, at)
            if at == len(text):
                break
            if not self._begun:
                if text[at] != "[":
                    raise StatisticsUnavailable("the statistics are no list")
                self._begun = True
                at += 1
            elif self._ended:
                raise StatisticsUnavailable(_NO_JSON)
            elif text[at] == "]" and self._may_end:
                self._ended = True
                at += 1
            else:
                try:
                    entry, end = self._decode(text, at)
                except ValueError:
                    break
                except RecursionError:
                    raise StatisticsUnavailable(_NO_JSON) from None
                end = _behind_space(text, end)
                if end == len(text) or text[end] not in ",]":
                    # Also "1" of "1.5". The rest may be still to come; if it is no JSON, something is left at last.
                    break
                self._ended, self._may_end = text[end] == "]", False
                at = end + 1
                self._take(entry)
        return at

    def _take(self, entry: object) -> None:
        metrics = entry.get("metrics") if isinstance(entry, dict) else None
        if isinstance(metrics, dict):
            for name in _NAMES:
                number = _number(metrics.get(name))
                if number is not None:
                    self._found.setdefault(name, number)

    def sample(self) -> BrokerSample:
        """Return what was found; raise StatisticsUnavailable."""
        found = self._found
        if "jvm_heap_used" not in found or not found.get("jvm_max_memory"):
            raise StatisticsUnavailable("the statistics have no jvm_heap_used and jvm_max_memory")
        # Without the allocator's figure direct memory is not known: what is reserved says nothing.
        used = found.get("brk_default_pool_used", 0)
        return BrokerSample(
            found["jvm_heap_used"], found["jvm_max_memory"], used, found.get("jvm_max_direct_memory", 0)
        )


# Parsed at a time, and looked at behind what was left of an entry.
STEP_BYTES: Final = 16_384
# A value, with its name, has some 30 bytes.
STEP_VALUES: Final = STEP_BYTES // 16
STEP_ENTRIES: Final = 256
# The metrics of the JVM have 3 KB, those of a namespace bundle 600 bytes.
LONGEST_ENTRY: Final = 32_768
_NO_JSON: Final = "the statistics are no JSON"
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NAMES: Final = ("jvm_heap_used", "jvm_max_memory", "jvm_max_direct_memory", "brk_default_pool_used")


def _behind_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at


def _values_in(body: bytes) -> int:
    """Return about how many values there are; each costs time, however short."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")


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
    if not _is_real(usage) or not _is_real(limit):
        return None
    sizes = int(usage * 1024 * 1024), int(limit * 1024 * 1024)
    # A limit below a byte is none, too.
    return sizes if sizes[1] > 0 else None


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
    if _values_in(body) > MOST_STATS_VALUES:
        raise StatisticsUnavailable(f"the statistics have more than {MOST_STATS_VALUES} values")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise StatisticsUnavailable(_NO_JSON) from None


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
    """The memory signal of the brokers: the fullest of them.

    The last value of each is kept for 5 samples that fail: who is short of memory may not answer for a while.
    """

    def __init__(self, samples_kept: int) -> None:
        self.failures = 0
        self._kept = samples_kept
        self._heaps: dict[str, LeastOverTime] = {}
        self._ratios: dict[str, float] = {}
        self._failed_in_a_row: dict[str, int] = {}

    def take(self, now: float, samples: Mapping[str, BrokerSample | Exception]) -> float | None:
        """Return the ratio of the fullest broker, by address; an answer without brokers fails."""
        if not samples:
            return self.failed()
        for address, sample in samples.items():
            if isinstance(sample, Exception):
                self.failures += 1
                self._fail(address)
                continue
            heap = self._heaps.setdefault(address, LeastOverTime()).add(now, sample.heap_used / sample.heap_limit)
            direct = sample.direct_used / sample.direct_limit if sample.direct_limit > 0 else 0.0
            self._ratios[address] = max(heap, direct)
            self._failed_in_a_row.pop(address, None)
        return self._fullest

    def failed(self) -> float | None:
        """Return the last ratio for 5 samples in which nobody answered, then None."""
        self.failures += 1
        for address in list(self._ratios):
            self._fail(address)
        return self._fullest

    @property
    def _fullest(self) -> float | None:
        return max(self._ratios.values(), default=None)

    def _fail(self, address: str) -> None:
        if address not in self._ratios:
            return
        failed = self._failed_in_a_row[address] = self._failed_in_a_row.get(address, 0) + 1
        if failed > self._kept:
            for known in (self._ratios, self._failed_in_a_row, self._heaps):
                known.pop(address, None)


class BacklogBook:
    """The backlogs of topics: which to ask for next, and what is known.

    Three failures in a row make one unknown, and so does time: behind a broker that hangs a thousand topics wait.
    """

    def __init__(self, most_topics: int) -> None:
        self.failures = 0
        self._most = most_topics
        # In the order of their coming, and when they came.
        self._known: dict[str, BacklogSample] = {}
        self._came: dict[str, float] = {}
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
            self._forget(gone)
            self._failed.pop(gone, None)

    def next(self) -> str | None:
        """Return the topic to ask for next; None without any."""
        topic = next(iter(self._order), None)
        if topic is not None:
            self._order[topic] = self._order.pop(topic)
        return topic

    def take(self, now: float, topic: str, sample: BacklogSample) -> None:
        """Record the backlog of a topic that is still asked for."""
        self._failed.pop(topic, None)
        self._forget(topic)
        if topic in self._order:
            self._known[topic], self._came[topic] = sample, now

    def forget_old(self, now: float) -> None:
        """Forget the backlogs that came too long ago."""
        while self._came and now - next(iter(self._came.values())) > MOST_AGE_SECONDS:
            self._forget(next(iter(self._came)))

    def _forget(self, topic: str) -> None:
        self._known.pop(topic, None)
        self._came.pop(topic, None)

    def failed(self, topic: str) -> None:
        """Record that a topic's statistics did not come; after three failures its backlog is not known."""
        self.failures += 1
        if topic in self._order:
            self._failed[topic] = self._failed.get(topic, 0) + 1
            if self._failed[topic] >= MOST_FAILURES:
                self._forget(topic)


MOST_FAILURES: Final = 3
# A round of a thousand topics takes less than a minute.
MOST_AGE_SECONDS: Final = 300.0
