"""Own books in which every number of the table of metrics is there and has a value of its own."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from limiter.soft_pool import PoolRecord
from limiter.statistics import LimiterStatistics
from proxy.app.memory.in_use import used_bytes
from proxy.app.metrics.counters import BudgetLine, MemoryBudget
from proxy.app.metrics.overload_rows import show_overload
from proxy.app.metrics.process import LAG
from proxy.app.metrics.process_rows import USED_BYTES, show_process
from proxy.app.metrics.table import INSTRUMENTS
from proxy.core.counters import Counters, Declared, Number
from proxy.core.loop_budget import LoopBudget
from proxy.core.process_memory import SYSTEM_PATHS, MemoryPaths
from proxy.overload.counters import OverloadCounters, TopicNumbers
from proxy.overload.samples import Signals
from proxy.relay.engines import RelayEngines
from proxy.relay.memory.sockets import SocketMemory
from proxy.relay.metrics import RELAYS
from proxy.relay.relay_crowds import RelayCrowds
from proxy.relay.socket_bound import SocketBound
from proxy.relay.threads import NO_THREADS
from proxy.relay.topic_slots import RateCounts
from proxy.requests.request_bytes import COMMANDS, RequestBytes
from proxy.requests.topic_lists.memory_metrics import LIMITERS, PIP_442, Memories
from proxy.requests.topic_lists.service import SHARING
from proxy.telemetry.durations import Durations
from proxy.telemetry.events.log import EVENTS, SinkNumbers
from proxy.telemetry.limiter_metrics import LimiterMetrics
from proxy.telemetry.tenants import TENANTS, TenantTracker
from tests.support.kernel_files import kernel_files

CREATED = 1_700_000_000.25
WAITS_SECONDS = (0.0, 0.0004, 0.003, 0.2, 0.2, 7.0, 25.001, 90.0)


class Books:
    """The books of a limiter, with the numbers that a test gives."""

    names: Final = [name for name in LimiterStatistics.__dataclass_fields__ if name != "name"]

    def __init__(self, **numbers: int) -> None:
        self._numbers = dict.fromkeys(self.names, 0) | numbers

    def statistics(self) -> LimiterStatistics:
        return LimiterStatistics(name="fake", **self._numbers)


class _FullView:
    """The view of overload control with both throttles enabled, and every number of its own."""

    shows_topics = True

    def __init__(self, numbers: "itertools.count[int]") -> None:
        self._topic = TopicNumbers("persistent://t/n/a", True, *(float(next(numbers)) for _ in range(5)))
        self.signals = Signals(
            proxy_ratio=next(numbers), broker_ratio=next(numbers), source="test", used_bytes=0,
            limit_bytes=next(numbers), owners={"rest": next(numbers)},
        )  # fmt: skip
        self.threshold_state = "paused"
        self.paused = {"paused": next(numbers), "would_pause": next(numbers)}
        self.longest_pause_seconds = next(numbers)
        self.memory_pressure = next(numbers)
        self.active_topics = next(numbers)
        self.rate_counts = RateCounts(*(next(numbers) for _ in range(4)))
        self.marks = {"high": float(next(numbers)), "low": float(next(numbers))}

    def topics(self) -> list[TopicNumbers]:
        return [self._topic]

    def largest_topics(self, most: int) -> list[TopicNumbers]:
        return [self._topic][:most]

    def age_seconds(self) -> float:
        return 0.5


def full_view(numbers: "itertools.count[int]") -> Any:
    """Return a stand-in for the control of both throttles."""
    return _FullView(numbers)


class FullEventLog:
    """An event log whose numbers are all there."""

    topic_keeps = True

    def __init__(self, **sinks: SinkNumbers) -> None:
        self._sinks = sinks

    def sinks(self) -> dict[str, SinkNumbers]:
        return self._sinks

    def files(self) -> dict[str, int]:
        return {"finished": 5, "deleted": 6}


def full_counters(numbers: "itertools.count[int]") -> Counters:
    counters = Counters(created=CREATED)
    for metric in INSTRUMENTS:
        if isinstance(metric, Declared):
            found = counters[metric]
            if isinstance(found, Number):
                found.value = next(numbers)
            else:
                labels = list(found) or [metric.labels[0] if len(metric.labels) == 1 else metric.labels]
                found.update({label: next(numbers) for label in labels})
    return counters


def full_overload(numbers: "itertools.count[int]") -> OverloadCounters:
    overload = OverloadCounters()
    overload.view = full_view(numbers)
    for name in overload.__slots__:
        if type(value := getattr(overload, name)) in (int, float):
            setattr(overload, name, next(numbers))
        elif isinstance(value, dict):
            value.update({key: next(numbers) for key in value})
    overload.paused_by = {"threshold": next(numbers)}
    overload.delays = {"median": next(numbers), "longest": next(numbers)}
    for controller in (overload.threshold, overload.adaptive):
        for name in controller.__slots__:
            setattr(controller, name, next(numbers))
    return overload


def full_budget(numbers: "itertools.count[int]") -> MemoryBudget:
    budget, total = MemoryBudget(), next(numbers)
    lines = (BudgetLine("decoded_lists", "decoded topic lists", "", 100), BudgetLine("a_line", "a line", "", 7))
    budget.take(lines, total, (BudgetLine("relay_unsent", "unsent bytes of relays", "", next(numbers)),))
    return budget


def full_relays(numbers: "itertools.count[int]") -> RelayEngines:
    """Give engines with a pool and a bound, as metrics see them."""
    log: Any = None
    bound = SocketBound(next(numbers), lambda _: None, lambda: (), RelayCrowds(), log, lambda: 5.0)
    bound.ended, bound.tight = next(numbers), True
    pool = PoolRecord(1000, 1000 + next(numbers), next(numbers), 0.0, 1, 0.0)
    found: Any = SimpleNamespace(
        bound=bound, pool=pool, weighed=SocketMemory(next(numbers), next(numbers)), threads=NO_THREADS
    )
    return cast(RelayEngines, found)


def known_process(directory: Path) -> MemoryPaths:
    """Make the kernel's files of a process below `directory`."""
    files = {
        "proc/self/statm": "900 700 0 0 0 0 0\n",
        "proc/meminfo": "MemTotal:           8192 kB\n",
        "proc/self/status": "Name:\tproxy\nVmHWM:\t   4096 kB\n",
        "proc/self/stat": f"7 (a b) c) S {' '.join(str(n) for n in range(1, 19))} 100 {' '.join(30 * ['0'])}\n",
        "proc/self/cgroup": "0::/\n",
        "cgroup/memory.max": "1048576\n",
    }
    return kernel_files(directory, files | {f"proc/self/fd/{number}": "" for number in range(5)})


class Sources:
    """What metrics are read from, without the rest of a proxy: each part is shown as a proxy shows it."""

    def __init__(
        self,
        counters: Counters,
        heap: Books,
        direct: Books,
        *,
        budget: MemoryBudget | None = None,
        overload: OverloadCounters | None = None,
        tenants: TenantTracker | None = None,
        paths: MemoryPaths = SYSTEM_PATHS,
        commands: RequestBytes | None = None,
        relays: RelayEngines | None = None,
        event_log: Any = None,
        held: Mapping[str, float] | None = None,
    ) -> None:
        self.counters = counters
        self.heap_waits, self.direct_waits = LimiterMetrics(lambda: 100.0), LimiterMetrics(lambda: 100.0)
        self.lag = Durations(lambda: 100.0)
        self.budget, self.overload = budget or MemoryBudget(), overload or OverloadCounters()
        self.tenants = tenants or TenantTracker()
        waits = self.heap_waits.wait_millis, self.direct_waits.wait_millis
        counters.derive((*PIP_442, *LIMITERS), lambda: Memories(heap.statistics(), direct.statistics(), *waits))
        counters.derive((SHARING,), lambda: counters)
        counters.derive((LAG,), lambda: self.lag)
        counters.derive(TENANTS, lambda: self.tenants)
        counters.derive(EVENTS, lambda: event_log)
        counters.derive(RELAYS, lambda: relays)
        if commands is not None:
            counters.derive(COMMANDS, commands.record)
        show_overload(counters, self.overload)
        self.at(paths)
        counters.show(USED_BYTES, lambda: used_bytes(counters, held or {}, None, relays, event_log))

    def at(self, paths: MemoryPaths) -> None:
        """Read the numbers of the process in other files."""
        show_process(self.counters, self.budget, paths)


def full_sources(memory: MemoryPaths = SYSTEM_PATHS) -> Sources:
    numbers = itertools.count(3)
    tenants = TenantTracker()
    tenants.asked("public/default")
    tenants.sent("public/default", 1234)
    tenants.refused("public/default")
    heap, direct = (Books(**{name: next(numbers) for name in Books.names}) for _ in range(2))
    clock: Any = SimpleNamespace(time=lambda: 5.0)
    commands = RequestBytes(clock, 1000, LoopBudget(clock, clock.time))
    commands.hold("192.0.2.1", 1000 + next(numbers))
    event_log: Any = FullEventLog(files=SinkNumbers(*(next(numbers) for _ in SinkNumbers._fields)))
    sources = Sources(
        full_counters(numbers), heap, direct, budget=full_budget(numbers), overload=full_overload(numbers),
        tenants=tenants, paths=memory, commands=commands, relays=full_relays(numbers), event_log=event_log,
    )  # fmt: skip
    for seconds in WAITS_SECONDS:
        sources.heap_waits.waited(seconds, True)
        sources.direct_waits.waited(seconds * 2, False)
        sources.lag.add(seconds * 10)
    return sources
