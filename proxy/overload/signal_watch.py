"""Keep the signals up to date: this machine's memory, the brokers' memory, the backlog of topics.

Rule: a signal that cannot be read keeps its value for 5 samples, then it is not known, and nobody is slowed for it.
Reads are off the event loop; questions to brokers have tasks of their own, so that a slow broker delays no sample.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from proxy.overload.bounds import MOST_BACKLOGS
from proxy.overload.broker_statistics import BacklogBook, BrokerMonitor, StatisticsRefused
from proxy.overload.counters import OverloadCounters
from proxy.overload.memory_use import SAMPLES_KEPT, MemoryMonitor
from proxy.overload.report import ThrottleReport
from proxy.overload.samples import BrokerReader, BrokerSample, MemorySample, OwnerBytes, SignalReader, Signals
from proxy.overload.settings import BACKLOGS_A_SECOND, BROKER_SECONDS, OverloadSettings

# Questions are spread by so much of their distance, so that several proxies do not ask together.
JITTER: Final = 0.2

OffLoop = Callable[[Callable[[], MemorySample | None]], Awaitable[MemorySample | None]]


class SignalWatch:
    """The signals in force; `off_loop` calls a function in a thread, `owners` counts the bytes of known owners."""

    def __init__(
        self,
        settings: OverloadSettings,
        memory: SignalReader,
        brokers: BrokerReader | None,
        owners: Callable[[], OwnerBytes],
        off_loop: OffLoop,
        counters: OverloadCounters,
        report: ThrottleReport,
    ) -> None:
        self._settings = settings
        self._memory = memory
        self._brokers = brokers
        self._owners = owners
        self._off_loop = off_loop
        self._counters = counters
        self._report = report
        self._monitor = MemoryMonitor(settings.threshold.marks)
        self._broker_monitor = BrokerMonitor(SAMPLES_KEPT)
        self._broker_ratio: float | None = None
        self._is_refused = False
        self.backlogs = BacklogBook(MOST_BACKLOGS)
        self.signals = Signals()

    def apply(self, settings: OverloadSettings) -> None:
        """Change the settings; what is not watched any more is forgotten: the last value would be an old one later."""
        self._settings = settings
        self._monitor.marks = settings.threshold.marks
        if not settings.watches_proxy:
            self._monitor.forget()
        if not settings.watches_brokers:
            self._forget_brokers()
            self.backlogs.seen(())

    async def sample(self, now: float) -> Signals:
        """Read this machine's memory and return all signals."""
        found = Signals()
        if self._settings.watches_proxy:
            found = await self._own_memory(now)
        self.signals = replace(found, broker_ratio=self._broker_ratio)
        return self.signals

    async def _own_memory(self, now: float) -> Signals:
        try:
            sample = await self._off_loop(self._memory.read)
            assert sample is not None
            found = self._monitor.take(sample, self._owners())
        except Exception as error:
            self._counters.signal_failures["proxy"] += 1
            self._report.unreadable(now, "proxy", error)
            return self._monitor.failed()
        if self._monitor.trim_is_due():
            await self._give_back(now)
        return found

    async def _give_back(self, now: float) -> None:
        """Return free pages of the allocator; a trim that fails, or takes too long, costs no sample."""
        self._counters.trims += 1
        try:
            await self._off_loop(self._trim)
        except Exception as error:
            self._report.not_trimmed(now, error)

    def _trim(self) -> None:
        self._memory.trim()

    async def ask_brokers(self, now: float) -> None:
        """Ask the brokers for their memory."""
        if self._brokers is None or not self._settings.watches_brokers:
            return
        try:
            self._answered(now, await self._brokers.memory())
        except StatisticsRefused as error:
            self._refused(error)
        except Exception as error:
            self._not_answered(now, error)
            self._broker_ratio = self._broker_monitor.failed()

    def _answered(self, now: float, found: Mapping[str, BrokerSample | Exception]) -> None:
        if not self._settings.watches_brokers:
            # The question was under way when a key was changed: its answer would stay for good.
            return
        self._is_refused = False
        for answer in found.values():
            if isinstance(answer, Exception):
                self._not_answered(now, answer)
        self._broker_ratio = self._broker_monitor.take(now, found)

    def _refused(self, error: StatisticsRefused) -> None:
        """Forget the brokers' memory: without the rights it is not known, and that is no failure of theirs."""
        self._forget_brokers()
        if not self._is_refused:
            self._is_refused = True
            self._report.refused(error)

    def _not_answered(self, now: float, error: Exception) -> None:
        self._counters.signal_failures["brokers"] += 1
        self._report.unreadable(now, "brokers", error)

    def _forget_brokers(self) -> None:
        self._broker_ratio = None
        self._broker_monitor = BrokerMonitor(SAMPLES_KEPT)

    async def ask_backlog(self, now: float) -> None:
        """Ask for the backlog of the topic that was asked for longest ago."""
        self.backlogs.forget_old(now)
        topic = self.backlogs.next() if self._settings.watches_brokers else None
        if self._brokers is None or topic is None:
            return
        try:
            self.backlogs.take(now, topic, await self._brokers.backlog(topic))
        except Exception as error:
            self._counters.signal_failures["backlog"] += 1
            self._report.unreadable(now, "backlog", error)
            self.backlogs.failed(topic)

    def topics_seen(self, topics: Sequence[str]) -> None:
        """Replace the topics whose backlog is asked for, the largest first."""
        if self._settings.watches_brokers:
            self.backlogs.seen(topics)

    async def run_brokers(self, clock: Callable[[], float]) -> None:
        """Ask for the brokers' memory until cancelled."""
        while True:
            await self.ask_brokers(clock())
            await asyncio.sleep(jittered(BROKER_SECONDS))

    async def run_backlogs(self, clock: Callable[[], float]) -> None:
        """Ask for backlogs until cancelled, at most 20 a second."""
        while True:
            await self.ask_backlog(clock())
            await asyncio.sleep(jittered(1 / BACKLOGS_A_SECOND))


def jittered(seconds: float) -> float:
    """Return a time that is a little longer, at random."""
    return seconds * (1 + JITTER * random.random())
