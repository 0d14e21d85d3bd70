"""Keep the signals up to date: this machine's memory, the brokers' memory, the backlog of topics.

    signal    read                        known for        presses by
    proxy     each sample, in a thread    5 failures more  marks of the threshold and of rates
    brokers   each 3 s, the fullest one   5 failures more  the same
    backlog   a topic each 50 ms          2, and 5 min     marks of backlog, its topic's rate alone

Rule: what is not known slows nobody. Questions to brokers have tasks of their own, so that a slow broker delays no
sample.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, TypeVar

from proxy.brokers.admin_port import AdminRefused
from proxy.core.tasks import TaskScope, spread
from proxy.overload.broker_questions import BrokerMemory, BrokerQuestions
from proxy.overload.counters import OverloadCounters
from proxy.overload.machine_memory import MachineMemory
from proxy.overload.report import ThrottleReport
from proxy.overload.samples import BacklogSample, MemoryMonitor, OwnerBytes, Signals
from proxy.overload.settings import OverloadSettings

# The longest pauses between questions: metrics of brokers are large answers.
BROKER_SECONDS: Final = 3.5
BACKLOG_SECONDS: Final = 0.06
# Who is short of memory may not answer for a while.
FAILURES_KEPT: Final = 5
BACKLOG_FAILURES_KEPT: Final = 2
# A round of a thousand topics takes a minute; behind a broker that hangs they wait.
MOST_BACKLOG_AGE: Final = 300.0

V = TypeVar("V")


class LastKnown(dict[str, V]):
    """The last value of each key: kept for some failures in a row, then not known."""

    def __init__(self, failures_kept: int) -> None:
        super().__init__()
        self._failures_kept = failures_kept
        # When each came, and how often it could not be read since; the oldest first.
        self._came: dict[str, tuple[float, int]] = {}

    def took(self, now: float, key: str, value: V) -> None:
        """Record a value."""
        self.forget(key)
        self[key], self._came[key] = value, (now, 0)

    def failed(self, key: str) -> None:
        """Record that a value could not be read."""
        if key in self._came:
            came, failures = self._came[key]
            self._came[key] = (came, failures + 1)
            if failures >= self._failures_kept:
                self.forget(key)

    def forget(self, key: str) -> None:
        """Forget a value."""
        self.pop(key, None)
        self._came.pop(key, None)

    def keep(self, keys: Collection[str]) -> None:
        """Forget all other keys."""
        for gone in self.keys() - set(keys):
            self.forget(gone)

    def forget_old(self, begin: float) -> None:
        """Forget the values that came before."""
        while self._came and next(iter(self._came.values()))[0] < begin:
            self.forget(next(iter(self._came)))


class SignalWatch:
    """The signals in force."""

    def __init__(
        self,
        settings: OverloadSettings,
        memory: MachineMemory,
        owners: Callable[[], OwnerBytes],
        brokers: BrokerQuestions | None,
        counters: OverloadCounters,
        report: ThrottleReport,
    ) -> None:
        self._settings = settings
        self._memory = memory
        self._owners = owners
        # None without web services of brokers.
        self._brokers = brokers
        # What the controllers count and tell, too.
        self.counters = counters
        self.report = report
        self._monitor = MemoryMonitor(settings.threshold.marks)
        self._own = LastKnown[Signals](FAILURES_KEPT)
        self._of_brokers = LastKnown[BrokerMemory](FAILURES_KEPT)
        self.backlogs = LastKnown[BacklogSample](BACKLOG_FAILURES_KEPT)
        self._is_refused = False
        # The topics whose backlog is asked for, the one that was asked for longest ago first, and who told it last:
        # other brokers say no, or nothing for seconds.
        self._topics: dict[str, str] = {}
        self.signals = Signals()

    def apply(self, settings: OverloadSettings) -> None:
        """Change the settings; what is not watched any more is forgotten: the last value would be an old one later.

        A look that is under way has the table that was, and what it finds goes with that.
        """
        self._settings = settings
        self._monitor.marks = settings.threshold.marks
        if not settings.watches_proxy:
            self._monitor = MemoryMonitor(settings.threshold.marks)
            self._own = LastKnown(FAILURES_KEPT)
        if not settings.watches_brokers:
            self._of_brokers = LastKnown(FAILURES_KEPT)
            self.topics_seen(())

    async def sample(self, now: float) -> Signals:
        """Read this machine's memory and return all signals."""
        if self._settings.watches_proxy:
            await self._own_memory(now)
        fullest = max((memory.ratio for memory in self._of_brokers.values()), default=None)
        self.signals = self._own.get("", Signals())._replace(broker_ratio=fullest)
        return self.signals

    async def _own_memory(self, now: float) -> None:
        known, monitor = self._own, self._monitor
        try:
            found = monitor.take(await self._memory.read(), self._owners())
        except Exception as error:
            self._failed(now, "proxy", error, known)
            return
        known.took(now, "", found)
        if found.proxy_ratio is None or not monitor.trim_is_due(found.proxy_ratio):
            return
        self.counters.trims += 1
        try:
            await self._memory.trim()
        except Exception as error:
            # A trim that fails, or takes too long, costs no sample.
            self.report.not_trimmed(now, error)

    async def ask_brokers(self, now: float) -> None:
        """Ask each broker for its memory."""
        brokers, known, failed = self._brokers, self._of_brokers, dict[str, Exception]()
        if brokers is None or not self._settings.watches_brokers:
            return
        for url in brokers.urls:
            try:
                heap, direct = await brokers.memory(url)
            except Exception as error:
                # The frames of its traceback have the answer, and would be kept until garbage is collected.
                failed[url] = error.with_traceback(None)
                continue
            memory = known.get(url) or BrokerMemory()
            memory.take(now, heap, direct)
            known.took(now, url, memory)
        if len(failed) < len(brokers.urls):
            self._is_refused = False
        elif all(isinstance(error, AdminRefused) for error in failed.values()):
            # Without the rights the brokers' memory is not known, and that is no failure of theirs.
            known.keep(())
            if not self._is_refused:
                self._is_refused = True
                self.report.refused(next(reversed(failed.values())))
            return
        for url, why in failed.items():
            self._failed(now, "brokers", why, known, url)

    async def ask_backlog(self, now: float) -> None:
        """Ask for the backlog of the topic that was asked for longest ago."""
        self.backlogs.forget_old(now - MOST_BACKLOG_AGE)
        brokers, topic = self._brokers, next(iter(self._topics), None)
        if brokers is None or topic is None:
            return
        owner = self._topics[topic] = self._topics.pop(topic)
        try:
            found, owner = await brokers.backlog(topic, owner)
            if topic in self._topics:
                self.backlogs.took(now, topic, found)
        except Exception as error:
            self._failed(now, "backlog", error, self.backlogs, topic)
            owner = ""
        if topic in self._topics:
            self._topics[topic] = owner

    def topics_seen(self, topics: Sequence[str]) -> None:
        """Replace the topics whose backlog is asked for, the largest first."""
        wanted = dict.fromkeys(topics if self._settings.watches_brokers else (), "")
        kept = {topic: owner for topic, owner in self._topics.items() if topic in wanted}
        self._topics = kept | wanted | kept
        self.backlogs.keep(wanted)

    def _failed(self, now: float, signal: str, error: Exception, known: LastKnown[Any], key: str = "") -> None:
        known.failed(key)
        self.counters.signal_failures[signal] += 1
        self.report.unreadable(now, signal, error)

    def start(self, scope: TaskScope, clock: Callable[[], float]) -> None:
        """Ask brokers, if there are any, until the scope is cancelled."""
        if self._brokers is not None:
            scope.start(_repeated(self.ask_brokers, clock, BROKER_SECONDS))
            scope.start(_repeated(self.ask_backlog, clock, BACKLOG_SECONDS))


async def _repeated(ask: Callable[[float], Awaitable[None]], clock: Callable[[], float], seconds: float) -> None:
    while True:
        await ask(clock())
        await asyncio.sleep(spread(seconds))
