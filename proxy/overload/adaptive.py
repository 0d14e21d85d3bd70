"""The adaptive publish throttle (pulsar-25239): the rate of each topic by the pressure of memory and of its backlog.

Rules: no I/O and no clock; `evaluate` takes samples and yields decisions, and may be left between two topics. A topic's
rate moves by at most `max_change` of its natural rate a cycle, downwards and upwards; the throttle of a topic is over
when the pressure is 0 and the rate is natural again. A sample that is no rate (a clock that jumped, counters that began
anew) teaches nothing and moves nothing. A topic that has no natural rate when there is pressure begins with a modest
one (`rate_rules.Beginners`), from its first message on: `begin` says with which, before the next evaluation.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from proxy.overload.bounds import MOST_TOPICS
from proxy.overload.rate_rules import (
    LEAST_BYTES,
    LEAST_MESSAGES,
    Beginners,
    ideal_rate,
    learned,
    next_rate,
)
from proxy.overload.rated_slots import RatedSlots
from proxy.overload.samples import BacklogSample, Marks
from proxy.overload.topic_choice import TopicChoice
from proxy.relay.topic_slots import OTHER, SlotSample

# A topic that nobody sends to is remembered so long: who reconnects is no newcomer.
FORGET_SECONDS: Final = 60.0
# A cycle that took more than so many intervals says nothing about a rate.
LONGEST_CYCLE: Final = 5.0
# A rate that is so close to the natural rate is the natural rate.
CLOSE: Final = 1e-9
# Smaller steps wait until they add up: each decision is a call into the relay engine and an event.
SMALLEST_STEP: Final = 0.01


@dataclass(frozen=True, slots=True)
class AdaptiveSettings:
    """The keys of the throttle; marks are fractions, `backlog_limit_bytes` stands in for a quota that is not set."""

    interval_seconds: float
    memory: Marks
    backlog: Marks
    backlog_limit_bytes: int
    min_rate_factor: float
    max_rate_change: float
    observe_only: bool
    topics: TopicChoice
    least_bytes: float = LEAST_BYTES
    least_messages: float = LEAST_MESSAGES

    @property
    def least(self) -> tuple[float, float]:
        """Return the bytes and messages a second that no topic is held below."""
        return self.least_bytes, self.least_messages

    def backlog_pressure(self, sample: BacklogSample | None) -> float:
        """Return the pressure of a topic's backlog; 0 if it is not known, or if there is no limit for it (A1)."""
        if sample is None:
            return 0.0
        limit = sample.quota_bytes if sample.quota_bytes > 0 else self.backlog_limit_bytes
        return self.backlog.pressure(sample.backlog_bytes / limit) if limit > 0 else 0.0


@dataclass(slots=True)
class Topic:
    """The knowledge of a topic: its slot and its counters there, natural and allowed rates, and both pressures.

    A natural rate of 0 is no baseline. `bytes_rate` and `messages_rate` are None while the topic is not throttled.
    """

    slot: int
    seen_at: float
    bytes: int
    messages: int
    natural_bytes: float = 0.0
    natural_messages: float = 0.0
    bytes_rate: float | None = None
    messages_rate: float | None = None
    is_applied: bool = False
    cut_sample: bool = False
    memory_pressure: float = 0.0
    backlog_pressure: float = 0.0
    # The rates hold for this epoch of the throttle only.
    epoch: int = 0
    # The natural rates are those that topics begin with under pressure, nobody has measured them.
    is_beginner: bool = False

    @property
    def is_throttled(self) -> bool:
        """Return whether the topic has a rate, applied or not."""
        return self.bytes_rate is not None

    @property
    def reduction(self) -> float:
        """Return the part of the natural rate that is taken away, 0 to 1."""
        if self.bytes_rate is None or self.natural_bytes <= 0:
            return 0.0
        return max(0.0, 1.0 - self.bytes_rate / self.natural_bytes)


class Change(StrEnum):
    """The change of a topic's throttle at a decision."""

    ACTIVATE = "activate"
    ADJUST = "adjust"
    DEACTIVATE = "deactivate"
    WOULD_ACTIVATE = "would_activate"
    WOULD_ADJUST = "would_adjust"
    WOULD_DEACTIVATE = "would_deactivate"
    RELEASE = "release"


class RateDecision(NamedTuple):
    """The rates of a topic from now on, None for no limit; `applies`: the slot's rate is to be set."""

    topic: str
    slot: int
    change: Change
    bytes_rate: float | None
    messages_rate: float | None
    natural_bytes: float
    natural_messages: float
    memory_pressure: float
    backlog_pressure: float

    @property
    def applies(self) -> bool:
        """Return whether the decision is applied; in ObserveOnly only releases are."""
        return self.change in (Change.ACTIVATE, Change.ADJUST, Change.DEACTIVATE, Change.RELEASE)


class AdaptiveThrottle:
    """The controller: state by topic; `failures` counts topics whose evaluation failed.

    No method walks all topics in one step: iterators do, and their caller may stop after each.
    """

    def __init__(self, settings: AdaptiveSettings) -> None:
        self.settings = settings
        self.topics: dict[str, Topic] = {}
        self.activations = 0
        self.failures = 0
        # Topics that were forgotten at the last evaluation.
        self.forgotten = 0
        self.memory_pressure = 0.0
        self._beginners = Beginners()
        self._rated = RatedSlots()
        # Slots whose rates are to be taken back, from earlier epochs.
        self._to_release: list[RatedSlots] = []
        self._epoch = 0
        self._last: float | None = None

    @property
    def active(self) -> int:
        """Return the number of topics whose rate is limited; 0 in ObserveOnly (A7)."""
        return self._rated.topics

    def begin(self, slot: int, name: str) -> tuple[float, float] | None:
        """Return the rates of a topic that has just got a slot, None for no limit: it counts from its first message.

        Without this a client that names a new topic several times a cycle would never be slowed.
        """
        settings, factor = self.settings, self.memory_pressure
        if factor <= 0 or settings.observe_only or name not in settings.topics:
            return None
        self._rated.begin(slot, name)
        return self._begun_rates(self._beginners.begin(settings.least), factor)

    def _begun_rates(self, natural: tuple[float, float], factor: float) -> tuple[float, float]:
        settings = self.settings
        bytes_rate, messages_rate = (ideal_rate(rate, factor, settings.min_rate_factor) for rate in natural)
        return max(settings.least_bytes, bytes_rate), max(settings.least_messages, messages_rate)

    def end(self) -> None:
        """End all rates, and give none to new topics: the throttle is off."""
        self.memory_pressure = 0.0
        self.release_all()

    def apply(self, settings: AdaptiveSettings) -> None:
        """Change the settings; every topic has to be released if the throttle from now on only observes.

        A throttle that begins to act begins at the natural rates: what it would have done was no step.
        """
        before, self.settings = self.settings, settings
        if settings.observe_only != before.observe_only:
            self.release_all()

    def release_all(self) -> None:
        """End all rates: `releases` takes them back. ObserveOnly was switched, or the throttle ends."""
        self._epoch += 1
        if self._rated:
            self._to_release.append(self._rated)
            self._rated = RatedSlots()

    def forget_all(self) -> Iterator[None]:
        """Forget all topics, one at each step: the throttle is off, and what it knows is in no budget any more."""
        while self.topics:
            self.topics.popitem()
            yield

    @property
    def must_release(self) -> bool:
        """Return whether `releases` has anything to yield."""
        return bool(self._to_release)

    def releases(self) -> Iterator[RateDecision]:
        """Yield the release of each slot whose rate ended; a slot that has a new rate meanwhile keeps that."""
        while self._to_release:
            ended = self._to_release[0]
            while ended:
                slot, name = ended.popitem()
                if slot not in self._rated:
                    yield self._released(slot, name)
            self._to_release.remove(ended)

    def evaluate(
        self,
        now: float,
        memory_ratio: float | None,
        samples: Iterable[SlotSample],
        backlogs: Mapping[str, BacklogSample],
        *,
        held: bool = False,
    ) -> Iterator[RateDecision | None]:
        """Yield the decision for each topic, None where nothing changes, and None for other steps of the work.

        `held`: the threshold throttle held producers up since the last call, so that no sample is of a natural rate.
        """
        settings = self.settings
        seconds = None if self._last is None else now - self._last
        self._last = now
        is_rate = seconds is not None and 0 < seconds <= LONGEST_CYCLE * settings.interval_seconds
        self.memory_pressure = settings.memory.pressure(memory_ratio)
        self.forgotten = 0
        self._beginners.begin_pass()
        self._rated.begin_pass()
        for sample in samples:
            try:
                yield from self._reused(sample)
                if held and sample.topic in self.topics:
                    self.topics[sample.topic].cut_sample = True
                yield self._topic(sample, now, seconds if is_rate else None, backlogs.get(sample.topic))
            except (ArithmeticError, TypeError, ValueError):
                self.failures += 1
        self._beginners.end_pass()
        yield from self._forget(now)

    def _released(self, slot: int, name: str) -> RateDecision:
        topic = self.topics.get(name)
        if topic is None or topic.slot != slot:
            return self._freed(name, slot)
        self._begin_epoch(topic)
        return self._free(name, topic)

    def _begin_epoch(self, topic: Topic) -> None:
        """Take the rates of an earlier epoch off a topic."""
        if topic.epoch != self._epoch:
            topic.epoch = self._epoch
            topic.bytes_rate = topic.messages_rate = None
            topic.cut_sample |= topic.is_applied
            self._end_beginning(topic)
            topic.is_applied = False

    def _end_beginning(self, topic: Topic) -> None:
        """Forget natural rates that nobody has measured; in ObserveOnly they were."""
        if topic.is_beginner and topic.is_applied:
            topic.natural_bytes = topic.natural_messages = 0.0
        topic.is_beginner = False

    def _reused(self, sample: SlotSample) -> Iterator[RateDecision]:
        """Take back the rate of a slot that belonged to another topic, or to this one long ago."""
        name, topic = self._rated.get(sample.slot), self.topics.get(sample.topic)
        # A topic that is new here may have begun with a rate (`begin`), which stays its own.
        if name is not None and (name != sample.topic or (topic is not None and topic.slot != sample.slot)):
            self._rated.pop(sample.slot)
            yield self._freed(name, sample.slot)
        if topic is not None and topic.slot != sample.slot and self._rated.get(topic.slot) == sample.topic:
            # The topic was away for so long that its slot was freed; nothing is limited there any more.
            self._rated.pop(topic.slot)

    def _topic(
        self, sample: SlotSample, now: float, seconds: float | None, backlog: BacklogSample | None
    ) -> RateDecision | None:
        topic = self.topics.get(sample.topic)
        # A topic that was away, and got its slot anew under pressure, is limited as a new topic is.
        if self._rated.shown(sample.slot, sample.topic) or topic is None:
            return self._new(sample, now, seconds, backlog)
        self._begin_epoch(topic)
        before = (topic.bytes, topic.messages, topic.slot)
        topic.bytes, topic.messages, topic.slot, topic.seen_at = sample.bytes, sample.messages, sample.slot, now
        moved = (sample.bytes - before[0], sample.messages - before[1])
        factor = self._press(sample.topic, topic, backlog)
        # A sample over a transition spans both rates; one of another slot, or of counters that began anew, none.
        cut = topic.cut_sample or before[2] != sample.slot or min(moved) < 0
        topic.cut_sample = False
        # Nothing came under a limit: clients may wait for tokens that a read of an earlier cycle took.
        held_up = topic.is_applied and (sample.ran_dry or not any(moved))
        if topic.is_beginner:
            self._beginners.seen()
        if factor > 0 and topic.natural_bytes <= 0:
            # The first burst under pressure is no natural rate. The slot OTHER has no new topics, only more messages.
            idle = sample.slot == OTHER and not any(moved)
            return None if seconds is None or idle else self._began(sample.topic, topic, factor)
        if seconds is not None and not cut and not held_up:
            # A bucket that never ran dry did not hold anybody up: the rate was natural, throttled or not.
            topic.natural_bytes = learned(topic.natural_bytes, moved[0] / seconds, self.settings.least_bytes)
            topic.natural_messages = learned(topic.natural_messages, moved[1] / seconds, self.settings.least_messages)
        elif held_up and not cut and topic.is_beginner and sample.ran_dry and factor > 0:
            natural = (topic.natural_bytes, topic.natural_messages)
            topic.natural_bytes, topic.natural_messages = self._beginners.grown(natural, self.settings.least)
        if not topic.is_beginner and sample.topic in self.settings.topics:
            self._beginners.known(topic.natural_bytes, topic.natural_messages)
        if seconds is None:
            return None
        return self._decide(sample.topic, topic, factor)

    def _new(
        self, sample: SlotSample, now: float, seconds: float | None, backlog: BacklogSample | None
    ) -> RateDecision | None:
        """Record a new topic, and begin with a rate if there is pressure."""
        has_begun = self._rated.get(sample.slot) == sample.topic
        topic = Topic(sample.slot, now, sample.bytes, sample.messages, epoch=self._epoch)
        is_known = len(self.topics) < MOST_TOPICS or sample.topic in self.topics
        if is_known:
            self.topics[sample.topic] = topic
        elif has_begun:
            # Nobody else knows that the slot has a rate.
            self._rated.begin(sample.slot, sample.topic)
        factor = self._press(sample.topic, topic, backlog)
        if is_known and factor > 0 and (has_begun or (seconds is not None and sample.slot != OTHER)):
            return self._began(sample.topic, topic, factor)
        if has_begun and factor <= 0:
            self._rated.pop(sample.slot)
            return self._free(sample.topic, topic)
        return None

    def _press(self, name: str, topic: Topic, backlog: BacklogSample | None) -> float:
        """Record both pressures of a topic; return the larger."""
        chosen = name in self.settings.topics
        topic.memory_pressure = self.memory_pressure if chosen else 0.0
        topic.backlog_pressure = self.settings.backlog_pressure(backlog) if chosen else 0.0
        return max(topic.memory_pressure, topic.backlog_pressure)

    def _began(self, name: str, topic: Topic, factor: float) -> RateDecision:
        """Limit a topic without a natural rate to the rates of a beginner, cut as all others are."""
        natural = self._beginners.begin(self.settings.least)
        self._beginners.seen()
        topic.is_beginner = True
        topic.natural_bytes, topic.natural_messages = natural
        topic.bytes_rate, topic.messages_rate = self._begun_rates(natural, factor)
        return self._entered(name, topic, Change.WOULD_ACTIVATE if self.settings.observe_only else Change.ACTIVATE)

    def _decide(self, name: str, topic: Topic, factor: float) -> RateDecision | None:
        if factor <= 0 and not topic.is_throttled:
            return None
        if not topic.is_throttled and not self._can_be_slowed(topic):
            return None
        if factor <= 0 and self._is_natural(topic):
            return self._deactivated(name, topic)
        was_throttled = topic.is_throttled
        # A slot that the topic has newly has no rate yet.
        is_set = not topic.is_applied or self._rated.get(topic.slot) == name
        if not self._move(topic, factor) and is_set:
            return None
        observes = self.settings.observe_only
        if was_throttled:
            change = Change.WOULD_ADJUST if observes else Change.ADJUST
        else:
            change = Change.WOULD_ACTIVATE if observes else Change.ACTIVATE
        return self._entered(name, topic, change)

    def _can_be_slowed(self, topic: Topic) -> bool:
        """Return whether a topic has a baseline (A5), and one above the rates that nobody is held below."""
        return topic.natural_bytes > 0 and (
            topic.natural_bytes > self.settings.least_bytes or topic.natural_messages > self.settings.least_messages
        )

    def _is_natural(self, topic: Topic) -> bool:
        rates = (topic.bytes_rate or 0.0, topic.messages_rate or 0.0)
        naturals = (topic.natural_bytes, topic.natural_messages)
        return all(rate >= natural * (1 - CLOSE) for rate, natural in zip(rates, naturals, strict=True))

    def _move(self, topic: Topic, factor: float) -> bool:
        """Move the rates of a topic by one step; return whether that is worth a decision.

        A step of less than a hundredth of the natural rate is put off, unless it leads back to the natural rate.
        """
        settings, before = self.settings, (topic.bytes_rate, topic.messages_rate)
        bytes_ideal = ideal_rate(topic.natural_bytes, factor, settings.min_rate_factor)
        messages_ideal = ideal_rate(topic.natural_messages, factor, settings.min_rate_factor)
        topic.bytes_rate = next_rate(
            topic.natural_bytes if topic.bytes_rate is None else topic.bytes_rate, bytes_ideal, topic.natural_bytes,
            settings.min_rate_factor, settings.max_rate_change, settings.least_bytes,
        )  # fmt: skip
        topic.messages_rate = next_rate(
            topic.natural_messages if topic.messages_rate is None else topic.messages_rate, messages_ideal,
            topic.natural_messages, settings.min_rate_factor, settings.max_rate_change, settings.least_messages,
        )  # fmt: skip
        if factor > 0 and before[0] is not None and before[1] is not None:
            least = SMALLEST_STEP * topic.natural_bytes, SMALLEST_STEP * topic.natural_messages
            if abs(topic.bytes_rate - before[0]) <= least[0] and abs(topic.messages_rate - before[1]) <= least[1]:
                topic.bytes_rate, topic.messages_rate = before
                return False
        return True

    def _entered(self, name: str, topic: Topic, change: Change) -> RateDecision:
        if change in (Change.ACTIVATE, Change.WOULD_ACTIVATE):
            topic.cut_sample = True
        if change is Change.ACTIVATE:
            self.activations += 1
        if change in (Change.ACTIVATE, Change.ADJUST):
            topic.is_applied = True
            self._rated.put(topic.slot, name)
        return self._decision(name, topic, change)

    def _deactivated(self, name: str, topic: Topic) -> RateDecision:
        topic.bytes_rate = topic.messages_rate = None
        change = Change.DEACTIVATE if topic.is_applied else Change.WOULD_DEACTIVATE
        self._rated.pop(topic.slot)
        made = self._decision(name, topic, change)
        self._end_beginning(topic)
        topic.is_applied, topic.cut_sample = False, True
        return made

    def _decision(self, name: str, topic: Topic, change: Change) -> RateDecision:
        return RateDecision(
            name, topic.slot, change, topic.bytes_rate, topic.messages_rate, topic.natural_bytes,
            topic.natural_messages, topic.memory_pressure, topic.backlog_pressure,
        )  # fmt: skip

    def _freed(self, name: str, slot: int) -> RateDecision:
        """Return the release of a slot whose topic is not there any more."""
        return RateDecision(name, slot, Change.RELEASE, None, None, 0.0, 0.0, 0.0, 0.0)

    def _free(self, name: str, topic: Topic) -> RateDecision:
        """Return the release of a topic, whatever rate it would have by now."""
        return self._decision(name, topic, Change.RELEASE)._replace(bytes_rate=None, messages_rate=None)

    def _forget(self, now: float) -> Iterator[RateDecision | None]:
        """Forget topics that were not seen for a while, with their rates, and rates whose slots were freed unseen."""
        for slot, name in self._rated.not_shown():
            yield self._freed(name, slot)
        old = []
        for name, topic in self.topics.items():
            # A clock that went back makes nobody older, and keeps nobody longer.
            topic.seen_at = min(topic.seen_at, now)
            if now - topic.seen_at > FORGET_SECONDS:
                old.append(name)
            yield None
        self.forgotten = len(old)
        for name in old:
            topic = self.topics.pop(name)
            if self._rated.get(topic.slot) == name:
                self._rated.pop(topic.slot)
                yield self._free(name, topic)
            else:
                yield None
