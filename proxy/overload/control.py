"""The shell of overload control: one timer, two controllers, exceptions that end nothing, decisions that are applied.

The shell takes Protocols only (`samples.py`) and knows no engine. An evaluation that fails is counted and
logged, and the next one comes; duration and time of the last evaluation are recorded in any case. At its end
everything is released.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nlargest
from typing import Final

from proxy.core.log import Logger
from proxy.core.tasks import TaskScope
from proxy.overload.adaptive import AdaptiveThrottle, RateDecision, Topic
from proxy.overload.counters import ControllerNumbers, OverloadCounters, TopicNumbers
from proxy.overload.pauses import PausedRelays
from proxy.overload.samples import (
    OTHER_TOPICS,
    BrokerReader,
    OwnerBytes,
    ProducerRelay,
    RateTable,
    SignalReader,
    Signals,
)
from proxy.overload.settings import OverloadSettings
from proxy.overload.signal_watch import MOST_BACKLOGS, OffLoop, SignalWatch
from proxy.overload.threshold import ThresholdThrottle
from proxy.overload.told import ThrottleRecorder, Told

# Topics evaluated in an iteration of the loop: about 2 ms.
SLICE: Final = 256
MOST_SHOWN: Final = 100
# The topics whose backlog is asked for are chosen anew so often.
CHOOSE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class OverloadParts:
    """The parts that overload control works with; `brokers` is None without web services, `recorder` without events."""

    relays: Callable[[], Iterable[ProducerRelay]]
    rates: RateTable
    memory: SignalReader
    brokers: BrokerReader | None
    owners: Callable[[], OwnerBytes]
    off_loop: OffLoop
    counters: OverloadCounters
    log: Logger
    recorder: ThrottleRecorder | None = None


class OverloadControl:
    """Both throttles on one clock; `start` begins, `close` releases everybody."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, settings: OverloadSettings, parts: OverloadParts,
        pick: Callable[[int], int] = random.randrange,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._settings = settings
        self._rates = parts.rates
        self._counters = parts.counters
        self._told = Told(parts.log, parts.recorder)
        self._watch = SignalWatch(
            settings, parts.memory, parts.brokers, parts.owners, parts.off_loop, parts.counters, self._told
        )
        self._asks = parts.brokers is not None
        self._relays = PausedRelays(parts.relays, self._relay_failed)
        self._threshold = ThresholdThrottle(settings.threshold, pick)
        self._adaptive = AdaptiveThrottle(settings.adaptive)
        self._would_pause = 0
        # Whether producers were paused at any sample since the last evaluation of rates.
        self._held = False
        self._largest: list[str] = []
        self._next_sample = self._next_rates = self._next_choice = 0.0
        self._ticked_at = self._counted_at = loop.time()
        self._woken = asyncio.Event()
        self._scope = TaskScope(self._crashed)

    def start(self) -> None:
        """Begin to watch."""
        clock = self._loop.time
        self._next_sample = self._next_rates = self._next_choice = clock()
        self._scope.start(self._run())
        if self._asks:
            self._scope.start(self._watch.run_brokers(clock))
            self._scope.start(self._watch.run_backlogs(clock))
        self._counters.view = self

    def apply(self, settings: OverloadSettings) -> None:
        """Change the settings; a throttle that only observes from now on, or is switched off, releases everybody."""
        was, self._settings = self._settings, settings
        self._watch.apply(settings)
        self._threshold.settings = settings.threshold
        released = self._adaptive.apply(settings.adaptive)
        if was.adaptive_enabled and not settings.adaptive_enabled:
            released += list(self._adaptive.release())
        for made in released:
            self._set_rate(self._loop.time(), made)
        self._next_sample = self._next_rates = self._loop.time()
        self._woken.set()

    def stop(self) -> None:
        """End, and release every connection and every topic at once; `close` waits for the tasks."""
        self._scope.cancel()
        self._counters.view = None
        self._relays.release_all()
        for made in self._adaptive.release():
            self._set_rate(self._loop.time(), made)

    async def close(self) -> None:
        """End, and wait for all tasks."""
        self.stop()
        await self._scope.emptied()

    # --- the clock --------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._turn(self._loop.time())
            except Exception as error:
                # An error while an error was told: only the clock may never stop.
                self._crashed(error)
            await self._sleep()

    async def _turn(self, now: float) -> None:
        if now >= self._next_sample:
            self._next_sample = now + self._settings.sample_seconds
            await self._guarded(self._counters.threshold, "threshold throttle", self.evaluate_threshold)
        if self._settings.adaptive_enabled and now >= self._next_rates:
            self._next_rates = now + self._settings.adaptive.interval_seconds
            await self._guarded(self._counters.adaptive, "adaptive throttle", self.evaluate_adaptive)
        self._ticked_at = self._loop.time()

    async def _sleep(self) -> None:
        ends = self._next_sample
        if self._settings.adaptive_enabled:
            ends = min(ends, self._next_rates)
        # An iteration of the loop at least, however late the clock is.
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout_at(ends):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()

    async def _guarded(
        self, numbers: ControllerNumbers, where: str, evaluate: Callable[[float], Awaitable[None]]
    ) -> None:
        began = time.perf_counter()
        try:
            await evaluate(self._loop.time())
        except Exception as error:
            numbers.failures += 1
            self._told.failed(self._loop.time(), where, error)
        finally:
            numbers.evaluations += 1
            numbers.last_seconds = time.perf_counter() - began
            numbers.last_at = time.time()

    def age_seconds(self) -> float:
        """Return the time since the clock ran last."""
        return self._loop.time() - self._ticked_at

    # --- evaluations ------------------------------------------------------------------------------

    async def evaluate_threshold(self, now: float) -> None:
        """Take a sample of memory, and pause, release or drip."""
        throttle, counters = self._threshold, self._counters
        signals = await self._watch.sample(now)
        counters.paused_seconds += len(throttle) * max(0.0, now - self._counted_at)
        self._counted_at = now
        ratio = signals.ratio
        relays = []
        if throttle.settings.enabled and (throttle.needs_relays or throttle.is_high(ratio)):
            relays = await self._relays.look(throttle)
        made = throttle.step(now, ratio, signals.limit_bytes, relays)
        self._would_pause = made.would_pause
        self._held |= bool(made.paused or made.resumed or len(throttle))
        counters.pauses += len(made.paused)
        counters.drips += len(made.dripped)
        counters.pause_overshoots += len(made.opened)
        await self._relays.apply(made)
        self._told.threshold(now, made, signals, observes=throttle.settings.observe_only)

    async def evaluate_adaptive(self, now: float) -> None:
        """Compute the rate of each topic, and set those that change."""
        throttle, signals = self._adaptive, self._watch.signals
        failed = throttle.failures
        ratio, backlogs = signals.ratio, self._watch.backlogs.known
        held, self._held = self._held, bool(len(self._threshold))
        decided = throttle.evaluate(now, ratio, self._rates.walk(), backlogs, held=held)
        for done, made in enumerate(decided, 1):
            if made is not None:
                self._set_rate(now, made)
            if not done % SLICE:
                await asyncio.sleep(0)
                if not self._settings.adaptive_enabled:
                    # Switched off meanwhile: every rate is released already.
                    break
        self._counters.activations = throttle.activations
        # An error of one topic is a failure, too, though the others had their turn.
        self._counters.adaptive.failures += throttle.failures - failed
        if now >= self._next_choice:
            self._next_choice = now + CHOOSE_SECONDS
            self._largest = self._largest_topics()
            self._watch.topics_seen(self._largest)

    def _set_rate(self, now: float, made: RateDecision) -> None:
        try:
            if made.applies:
                self._rates.set_rate(made.slot, made.bytes_rate, made.messages_rate)
        except Exception as error:
            self._counters.adaptive.failures += 1
            self._told.failed(now, "adaptive throttle", error)
        self._told.rate(now, made, self._watch.signals)

    def _largest_topics(self) -> list[str]:
        topics = self._adaptive.topics
        chosen = ((topic.natural_bytes, name) for name, topic in topics.items() if name not in ("", OTHER_TOPICS))
        return [name for _, name in nlargest(MOST_BACKLOGS, chosen)]

    def _relay_failed(self, error: BaseException) -> None:
        self._counters.threshold.failures += 1
        self._told.failed(self._loop.time(), "threshold throttle", error)

    def _crashed(self, error: BaseException) -> None:
        self._counters.internal_error(error, "overload control")

    # --- shown ------------------------------------------------------------------------------------

    @property
    def signals(self) -> Signals:
        """Return the signals in force."""
        return self._watch.signals

    @property
    def threshold_state(self) -> str | None:
        """Return the state of the threshold throttle, None if it is not enabled."""
        return str(self._threshold.state) if self._settings.threshold.enabled else None

    @property
    def paused(self) -> Mapping[str, int]:
        """Return the number of paused connections, and of those that would be paused."""
        return {"paused": len(self._threshold), "would_pause": self._would_pause}

    @property
    def longest_pause_seconds(self) -> float:
        """Return how long the connection that was paused first has been."""
        return self._threshold.longest_pause(self._loop.time())

    @property
    def memory_pressure(self) -> float | None:
        """Return the pressure that the adaptive throttle sees, None if it is not enabled."""
        return self._adaptive.memory_pressure if self._settings.adaptive_enabled else None

    @property
    def active_topics(self) -> int:
        """Return the number of topics whose rate is limited."""
        return self._adaptive.active

    @property
    def shows_topics(self) -> bool:
        """Return whether a key asks for metrics of single topics."""
        return self._settings.shows_topics and self._settings.adaptive_enabled

    def topics(self) -> Iterator[TopicNumbers]:
        """Yield the topics that are throttled most; nothing unless a key asks for them."""
        if not self.shows_topics:
            return
        topics = self._adaptive.topics
        keys = ((each.reduction, each.natural_bytes, name) for name, each in topics.items())
        for _, _, name in nlargest(MOST_SHOWN, keys):
            yield _numbers(name, topics[name])

    def largest_topics(self, most: int) -> Iterator[TopicNumbers]:
        """Yield the topics that send most, as they were chosen some seconds ago."""
        topics = self._adaptive.topics
        for name in [name for name in self._largest if name in topics][:most]:
            yield _numbers(name, topics[name])

    @property
    def marks(self) -> Mapping[str, float]:
        """Return the marks in force by name; those of a throttle that is not enabled are absent."""
        settings, found = self._settings, {}
        if settings.threshold.enabled:
            threshold = settings.threshold
            found = {"high": threshold.marks.high, "low": threshold.marks.low, "hard": threshold.hard}
        if settings.adaptive_enabled:
            found |= {"adaptive_high": settings.adaptive.memory.high, "adaptive_low": settings.adaptive.memory.low}
        return found


def _numbers(name: str, topic: Topic) -> TopicNumbers:
    natural = topic.natural_bytes
    rate = topic.bytes_rate if topic.is_applied else None
    return TopicNumbers(
        name, topic.is_applied, natural, natural if rate is None else min(rate, natural),
        topic.memory_pressure, topic.backlog_pressure, topic.reduction if topic.is_applied else 0.0,
    )  # fmt: skip
