"""Own books in which every number of the table of metrics is there and has a value of its own."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from limiter.soft_pool import PoolRecord
from limiter.statistics import LimiterStatistics
from proxy.app.metrics.counters import BudgetLine, Counters
from proxy.app.metrics.instrument import MetricSources
from proxy.clients.relay_crowds import RelayCrowds
from proxy.core.loop_budget import LoopBudget
from proxy.core.process_memory import SYSTEM_PATHS, MemoryPaths
from proxy.overload.counters import TopicNumbers
from proxy.overload.samples import Signals
from proxy.relay.memory.bound import SocketBound
from proxy.relay.memory.pool import RelayPool
from proxy.relay.memory.sockets import SocketMemory
from proxy.relay.topic_slots import RateCounts
from proxy.requests.request_bytes import RequestBytes
from proxy.telemetry.durations import Durations
from proxy.telemetry.events.counters import SinkNumbers
from proxy.telemetry.limiter_metrics import LimiterMetrics
from proxy.telemetry.tenants import TenantTracker
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


def full_counters(numbers: "itertools.count[int]") -> Counters:
    counters = Counters(causes=["shutdown", "idle"], outcomes=["answered"])
    rooms = (
        counters.net,
        counters.tls,
        counters.brokers,
        counters.requests,
        counters.relay,
        counters.clients,
        counters.overload,
    )
    for book in (
        *rooms, counters, counters.shared, counters.relay.watch, counters.web, counters.authentication,
    ):  # fmt: skip
        for name in book.__slots__:
            if type(value := getattr(book, name, None)) in (int, float):
                setattr(book, name, next(numbers))
            elif isinstance(value, dict):
                value.update({key: next(numbers) for key in value})
    for labels in (
        counters.shared.internal_errors,
        counters.requests.refused_requests,
        counters.requests.failed_requests,
    ):
        labels["cause"] = next(numbers)
    counters.brokers.broker_open_failures["refused"] = next(numbers)
    counters.web.refused["too_many"] = next(numbers)
    counters.authentication.successes["Basic", "basic"] = next(numbers)
    counters.authentication.failures["Basic", "basic", "WRONG"] = next(numbers)
    fixed = {name: next(numbers) for name in ("up", "down")}
    brokers = counters.brokers
    brokers.broker_connection_states = brokers.broker_member_states = brokers.broker_names = lambda: fixed
    brokers.broker_dials = lambda: fixed
    counters.overload.view = full_view(numbers)
    counters.overload.paused_by = {"threshold": next(numbers)}
    counters.overload.delays = {"median": next(numbers), "longest": next(numbers)}
    for controller in (counters.overload.threshold, counters.overload.adaptive):
        for name in controller.__slots__:
            setattr(controller, name, next(numbers))
    counters.tls.expiries = lambda: {"server": 86_400.5}
    counters.tls.list_expiries = lambda: {"server": 43_200.5}
    counters.controllers["clock"] = lambda: 0.25
    counters.budget = (
        BudgetLine("decoded_lists", "decoded topic lists", "", 100),
        BudgetLine("a_line", "a line", "", 7),
    )
    sink = SinkNumbers(*(next(numbers) for _ in SinkNumbers._fields))
    counters.event_log.sinks = lambda: {"files": sink}
    counters.event_log.files = lambda: fixed
    counters.event_log.topic_keeps = True
    counters.kernels_choice = (BudgetLine("relay_unsent", "unsent bytes of relays", "", next(numbers)),)
    counters.relay.socket_memory = SocketMemory(next(numbers), next(numbers))
    log: Any = None
    bound = counters.relay.bound = SocketBound(
        next(numbers), lambda _: None, lambda: (), RelayCrowds(), log, lambda: 5.0
    )
    bound.ended, bound.tight = next(numbers), True
    counters.relay.pool = RelayPool(1000)
    record = PoolRecord(1000, 1000 + next(numbers), next(numbers), 0.0, 1, 0.0)
    counters.relay.pool.use(lambda: record)
    clock: Any = SimpleNamespace(time=lambda: 5.0)
    commands = counters.requests.command_bytes = RequestBytes(clock, 1000, LoopBudget(clock, clock.time))
    commands.hold("192.0.2.1", 1000 + next(numbers))
    return counters


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


def full_sources(memory: MemoryPaths = SYSTEM_PATHS) -> MetricSources:
    numbers = itertools.count(3)
    heap_waits, direct_waits = LimiterMetrics(lambda: 100.0), LimiterMetrics(lambda: 100.0)
    lag = Durations(lambda: 100.0)
    for seconds in WAITS_SECONDS:
        heap_waits.waited(seconds, True)
        direct_waits.waited(seconds * 2, False)
        lag.add(seconds * 10)
    tenants = TenantTracker()
    tenants.asked("public/default")
    tenants.sent("public/default", 1234)
    tenants.refused("public/default")
    heap, direct = (Books(**{name: next(numbers) for name in Books.names}) for _ in range(2))
    return MetricSources(full_counters(numbers), heap, direct, heap_waits, direct_waits, lag, tenants, memory, CREATED)
