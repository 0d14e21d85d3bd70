"""The shell of overload control: one timer, two controllers, exceptions that end nothing, decisions that are applied.

An evaluation that fails is counted and logged, and the next one comes; duration and time of the last evaluation are
recorded in any case. At its end everything is released. Nothing walks all topics or all relays in one iteration of the
loop (`slices.py`).
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Final

from proxy.core.tasks import TaskScope
from proxy.overload.adaptive import AdaptiveThrottle, RateDecision, Topic
from proxy.overload.bounds import MOST_BACKLOGS
from proxy.overload.counters import ControllerNumbers, TopicNumbers
from proxy.overload.pauses import PausedRelays
from proxy.overload.samples import OTHER_TOPICS, Signals
from proxy.overload.settings import OverloadSettings
from proxy.overload.signal_watch import SignalWatch
from proxy.overload.slices import Largest, in_slices
from proxy.overload.threshold import HARD, ThresholdThrottle
from proxy.relay.engine import Relay
from proxy.relay.topic_slots import RateCounts, TopicSlots

MOST_SHOWN: Final = 100
# The topics whose backlog is asked for are chosen anew so often.
CHOOSE_SECONDS: Final = 10.0


class OverloadControl:
    """Both throttles on one clock; `start` begins, `close` releases everybody."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, settings: OverloadSettings, watch: SignalWatch,
        relays: Callable[[], Iterable[Relay]], rates: TopicSlots, pick: Callable[[int], int] = random.randrange,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._settings = settings
        self._rates = rates
        self._watch = watch
        self._counters, self._report = watch.counters, watch.report
        self._relays = PausedRelays(relays, self._relay_failed)
        self._threshold = ThresholdThrottle(settings.threshold, pick)
        self._adaptive = AdaptiveThrottle(settings.adaptive)
        self._would_pause = 0
        # Whether producers were paused at any sample since the last evaluation of rates.
        self._held = False
        self._largest: list[str] = []
        self._most_throttled: list[str] = []
        self._next_sample = self._next_rates = self._next_choice = 0.0
        self._ticked_at = self._counted_at = loop.time()
        self._woken = asyncio.Event()
        self._ended = asyncio.Event()
        self._scope = TaskScope(self._crashed)

    def start(self, after: "OverloadControl | None" = None) -> None:
        """Begin to watch; nobody is slowed before `after` has released everybody."""
        clock = self._loop.time
        self._next_sample = self._next_rates = self._next_choice = clock()
        self._scope.start(self._run(after))
        self._watch.start(self._scope, clock)
        self._counters.view = self

    def apply(self, settings: OverloadSettings) -> None:
        """Change the settings; a throttle that only observes from now on, or is switched off, releases everybody."""
        was, self._settings = self._settings, settings
        self._watch.apply(settings)
        self._threshold.settings = settings.threshold
        self._adaptive.apply(settings.adaptive)
        if was.adaptive_enabled and not settings.adaptive_enabled:
            self._adaptive.end()
        self._next_sample = self._next_rates = self._loop.time()
        self._woken.set()

    async def close(self) -> None:
        """End, and release every connection and every topic; the next control may have begun, and waits for that."""
        self._scope.cancel()
        if self._counters.view is self:
            self._counters.view = None
        try:
            await self._scope.emptied()
            # Before the next control begins: it says how topics begin from then on.
            self._rates.begin_with(None)
            await self._relays.release_all()
            self._adaptive.end()
            await self._release_rates()
            await in_slices(self._adaptive.forget_all())
        finally:
            self._ended.set()

    # --- the clock --------------------------------------------------------------------------------

    async def _run(self, after: "OverloadControl | None") -> None:
        if after is not None:
            await after._ended.wait()
            after = None
        self._rates.begin_with(self._adaptive.begin)
        while True:
            try:
                await self._turn(self._loop.time())
            except Exception as error:
                # An error while an error was told: only the clock may never stop.
                self._crashed(error)
            await self._sleep()

    async def _turn(self, now: float) -> None:
        await self._release_rates()
        if not self._settings.adaptive_enabled:
            await in_slices(self._adaptive.forget_all())
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
            self._report.failed(self._loop.time(), where, error)
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
        made = throttle.begun()
        await in_slices(throttle.steps(made, now, ratio, signals.limit_bytes, relays))
        self._would_pause = made.would_pause
        self._held |= bool(made.paused or made.resumed or len(throttle))
        counters.pauses += len(made.paused)
        counters.drips += len(made.dripped)
        counters.pause_overshoots += len(made.opened)
        await self._relays.apply(made)
        if not throttle.needs_relays:
            # Relays that end would be kept until memory is short again.
            await self._relays.forget_all()
        high = throttle.settings.marks.high
        self._report.threshold(now, made, signals, high, observes=throttle.settings.observe_only)

    async def evaluate_adaptive(self, now: float) -> None:
        """Compute the rate of each topic, and set those that change."""
        throttle, signals = self._adaptive, self._watch.signals
        failed = throttle.failures
        held, self._held = self._held, bool(len(self._threshold))
        await in_slices(self._rates_set(now, signals, held=held), between=self._goes_on)
        self._counters.activations = throttle.activations
        # An error of one topic is a failure, too, though the others had their turn.
        self._counters.adaptive.failures += throttle.failures - failed
        self._report.forgotten(throttle.forgotten, signals)
        if self._settings.shows_topics:
            await in_slices(self._choose_most_throttled())
        if now >= self._next_choice:
            self._next_choice = now + CHOOSE_SECONDS
            await in_slices(self._choose_largest())
            self._watch.topics_seen(self._largest)

    def _rates_set(self, now: float, signals: Signals, *, held: bool) -> Iterator[None]:
        backlogs = self._watch.backlogs
        for made in self._adaptive.evaluate(now, signals.ratio, self._rates.walk(), backlogs, held=held):
            if made is not None:
                self._set_rate(now, made)
            yield

    async def _goes_on(self) -> bool:
        """Return whether the evaluation goes on; releases that were asked for meanwhile go first."""
        await self._release_rates()
        return self._settings.adaptive_enabled

    async def _release_rates(self) -> None:
        """Take back the rates that ended: ObserveOnly was switched on, or the throttle is off."""
        if self._adaptive.must_release:
            await in_slices(self._rates_released(self._loop.time()))

    def _rates_released(self, now: float) -> Iterator[None]:
        for made in self._adaptive.releases():
            self._set_rate(now, made)
            yield

    def _set_rate(self, now: float, made: RateDecision) -> None:
        try:
            if made.applies:
                self._rates.set_rate(made.slot, made.bytes_rate, made.messages_rate)
        except Exception as error:
            self._counters.adaptive.failures += 1
            self._report.failed(now, "adaptive throttle", error)
        self._report.rate(now, made, self._watch.signals, self._settings.adaptive.memory)

    def _choose_largest(self) -> Iterator[None]:
        """Choose the topics that send most, step by step."""
        found = Largest(MOST_BACKLOGS)
        for name, topic in self._adaptive.topics.items():
            if name not in ("", OTHER_TOPICS):
                found.add((topic.natural_bytes, name))
            yield
        self._largest = [name for _, name in found]

    def _choose_most_throttled(self) -> Iterator[None]:
        """Choose the topics that have numbers of their own, step by step."""
        found = Largest(MOST_SHOWN)
        for name, topic in self._adaptive.topics.items():
            found.add((topic.reduction, topic.natural_bytes, name))
            yield
        self._most_throttled = [name for _, _, name in found]

    def _relay_failed(self, error: BaseException) -> None:
        self._counters.threshold.failures += 1
        self._report.failed(self._loop.time(), "threshold throttle", error)

    def _crashed(self, error: BaseException) -> None:
        self._counters.shared.internal_error(error, "overload control")

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
    def rate_counts(self) -> RateCounts:
        """Return what is counted of all topics since the process began."""
        return self._rates.counts

    @property
    def shows_topics(self) -> bool:
        """Return whether a key asks for metrics of single topics."""
        return self._settings.shows_topics and self._settings.adaptive_enabled

    def topics(self) -> Iterator[TopicNumbers]:
        """Yield the topics that are throttled most, as of the last evaluation; nothing unless a key asks for them."""
        if not self.shows_topics:
            return
        topics = self._adaptive.topics
        for name in [name for name in self._most_throttled if name in topics]:
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
            found = {"high": threshold.marks.high, "low": threshold.marks.low, "hard": HARD}
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
