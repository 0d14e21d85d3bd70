"""Ask brokers for their memory, and for the backlog of topics, over their admin port; no clock.

A JVM's raw figures stick high: garbage stays until a collection, and pooled direct memory stays for good. So heap is
the minimum over a window, which is what collections leave, and direct memory is what the allocator has in use. A broker
whose metrics are refused is asked for its load report; if that is refused as well, its memory is not known.

A thread is no help for large answers: `json` holds the interpreter's lock until it has parsed all. So metrics are
searched for their four numbers, piece by piece, and what is small enough to be parsed has a bound on its values.
"""

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote

from proxy.brokers.admin_port import AdminPort, AdminRefused, AdminUnavailable
from proxy.overload.bounds import LARGEST_METRICS_BYTES, LARGEST_STATS_BYTES, MOST_STATS_VALUES
from proxy.overload.samples import BacklogSample
from proxy.overload.slices import in_slices

METRICS_PATH: Final = "/admin/v2/broker-stats/metrics"
LOAD_PATH: Final = "/admin/v2/broker-stats/load-report"
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
_TOPIC: Final = re.compile(r"(?:(persistent|non-persistent)://)?([^/]+)/([^/]+)/(.+)", re.DOTALL)


class BrokerQuestions:
    """Asks the web services at `urls`."""

    def __init__(self, urls: tuple[str, ...], port: AdminPort) -> None:
        self.urls = urls
        self._port = port

    async def memory(self, url: str) -> tuple[float, float]:
        """Return a broker's heap and direct memory as parts of their limits; raise AdminRefused or AdminUnavailable."""
        try:
            body = await self._port.get(url, METRICS_PATH, LARGEST_METRICS_BYTES)
        except AdminRefused:
            return load_report_memory(await self._port.get(url, LOAD_PATH, LARGEST_STATS_BYTES))
        found: dict[bytes, int] = {}
        await in_slices(find_metrics(body, found), 1)
        return metrics_memory(found)

    async def backlog(self, topic: str, first: str = "") -> tuple[BacklogSample, str]:
        """Return the backlog of a topic, and who told it; the URL `first` is asked first; raise AdminUnavailable."""
        path, why = stats_path(topic), ""
        for url in sorted(self.urls, key=lambda each: each != first):
            try:
                return backlog_sample(await self._port.get(url, path, LARGEST_STATS_BYTES)), url
            except AdminUnavailable as error:
                # Its text alone: the frames of its traceback have the answer, and are kept until garbage is collected.
                why = str(error)
        raise AdminUnavailable(why)


def stats_path(topic: str) -> str:
    """Return the path of a topic's statistics; raise AdminUnavailable for a name that is none of a topic."""
    found = _TOPIC.fullmatch(topic)
    if found is None or {".", ".."} & set(topic.split("/")):
        raise AdminUnavailable("got no name of a topic, expected persistent://tenant/namespace/topic")
    try:
        return "/".join(["/admin/v2", *(quote(part, safe="") for part in found.groups("persistent")), "stats"])
    except UnicodeEncodeError:
        raise AdminUnavailable("the name of the topic is no text") from None


def find_metrics(body: bytes, found: dict[bytes, int]) -> Iterator[None]:
    """Find the memory in the answer of `broker-stats/metrics`, in steps of a millisecond; a name counts once."""
    for begin in range(0, len(body), STEP_BYTES):
        for metric in _METRIC.finditer(body, begin, begin + STEP_BYTES + _LONGEST_METRIC):
            number = _number(float(metric[2]))
            if number is not None:
                found.setdefault(metric[1], number)
        yield


def metrics_memory(found: Mapping[bytes, int]) -> tuple[float, float]:
    """Return heap and direct memory from a broker's metrics; raise AdminUnavailable."""
    used, limit = found.get(b"jvm_heap_used"), found.get(b"jvm_max_memory")
    if used is None or not limit:
        raise AdminUnavailable("the statistics have no jvm_heap_used and jvm_max_memory")
    # Without the allocator's figure direct memory is not known: what is reserved says nothing.
    direct, most = (found.get(name, 0) for name in (b"brk_default_pool_used", b"jvm_max_direct_memory"))
    return used / limit, direct / most if most else 0.0


def load_report_memory(body: bytes) -> tuple[float, float]:
    """Return the heap in a load report, whose sizes are MiB; raise AdminUnavailable.

    Its direct memory is what is reserved, and the allocator gives nothing back: that says nothing.
    """
    memory = _parsed(body).get("memory")
    if isinstance(memory, dict):
        used, limit = (_number(memory.get(name), MIB) for name in ("usage", "limit"))
        # A limit below a byte is none, too.
        if used is not None and limit:
            return used / limit, 0.0
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

    def take(self, now: float, heap: float, direct: float) -> None:
        """Take a sample; of a heap the smallest of the last 15 s counts, which is what collections leave."""
        self._heaps.append((now, heap))
        # A clock that went back knows nothing of the time after.
        while not now - WINDOW_SECONDS <= self._heaps[0][0] <= now:
            self._heaps.popleft()
        self.ratio = max(direct, min(heap for _, heap in self._heaps))
