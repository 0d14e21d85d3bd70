"""The adaptive throttle in any order of events: topics come and go, slots are reused, clocks jump, switches are thrown.

The plant applies what is decided, as the proxy does: slots have rates, and a slot that is freed loses its own.
"""

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proxy.overload.adaptive import AdaptiveSettings, AdaptiveThrottle, Change, RateDecision
from proxy.overload.samples import BacklogSample, Marks
from proxy.overload.topic_choice import TopicChoice
from proxy.relay.topic_slots import SlotSample

LEAST = 1000.0
STEP = 0.25
SETTINGS = AdaptiveSettings(
    interval_seconds=1.0, memory=Marks(0.85, 0.70), backlog=Marks(0.90, 0.75), backlog_limit_bytes=0,
    min_rate_factor=0.10, max_rate_change=STEP, observe_only=False,
    topics=TopicChoice(("*", "!spared*")), least_bytes=LEAST, least_messages=LEAST,
)  # fmt: skip
TOPICS = ("a", "b", "c", "spared")
RATES = st.sampled_from((0, 10, 900, 50_000, 3_000_000))
# The first three are those of a clock that is right.
SECONDS = st.sampled_from((1.0, 1.0, 1.0, 0.3, 0.0, -40.0, 7200.0))
RATIOS = st.one_of(st.none(), st.sampled_from((0.1, 0.70, 0.72, 0.85, 2.0)), st.floats(0, 1.3))
# From a tenth to all in steps of a quarter, and the cycle in which the limit goes; a clock that jumped costs one more,
# and so does a sample over a transition.
CALM_CYCLES = 8


class AdaptiveMachine(RuleBasedStateMachine):
    """Topics at slots; `rates` are those of the slots' buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.throttle = AdaptiveThrottle(SETTINGS)
        self.now = 1000.0
        self.slot_of: dict[str, int] = {}
        self.moved: dict[int, int] = {}
        self.rates: dict[int, float | None] = {}
        # The last rate of each topic that has a limit.
        self.last: dict[str, float] = {}

    @rule(topic=st.sampled_from(TOPICS), slot=st.integers(1, 6))
    def comes(self, topic: str, slot: int) -> None:
        """A topic gets a slot, and is limited at once if there is pressure."""
        if topic in self.slot_of or slot in self.slot_of.values():
            return
        self.slot_of[topic], self.moved[slot], self.rates[slot] = slot, 0, None
        begun = self.throttle.begin(slot, topic)
        if begun is not None:
            assert topic != "spared"
            assert min(begun) >= LEAST
            self.rates[slot] = begun[0]

    @rule(topic=st.sampled_from(TOPICS))
    def goes(self, topic: str) -> None:
        """A slot is freed, with its books."""
        slot = self.slot_of.pop(topic, None)
        if slot is not None:
            self.rates.pop(slot)
            self.moved.pop(slot)

    @rule(ratio=RATIOS, rate=RATES, seconds=SECONDS, held=st.booleans(), backlog=st.sampled_from((0, 80, 99)))
    def is_evaluated(self, ratio: float | None, rate: int, seconds: float, held: bool, backlog: int) -> None:
        """A cycle passes in which every topic offers the same."""
        self.now += seconds
        samples = []
        for topic, slot in self.slot_of.items():
            limit = self.rates[slot]
            passed = rate if limit is None else min(rate, limit)
            self.moved[slot] += int(passed * max(0.0, seconds))
            samples.append(SlotSample(slot, topic, self.moved[slot], self.moved[slot], passed < rate, 1))
        backlogs = {"b": BacklogSample(backlog, 100)}
        self.apply(self.throttle.evaluate(self.now, ratio, samples, backlogs, held=held))

    @rule(observes=st.booleans())
    def is_switched(self, observes: bool) -> None:
        """ObserveOnly is switched on or off."""
        self.throttle.apply(replace(SETTINGS, observe_only=observes))
        self.take_back()
        if observes:
            assert not any(self.rates.values())

    @rule()
    def is_disabled(self) -> None:
        self.throttle.end()
        self.take_back()
        assert not any(self.rates.values())

    @rule(rate=RATES)
    def calms_down(self, rate: int) -> None:
        """Without pressure every limit is gone in a few cycles."""
        for _ in range(CALM_CYCLES):
            self.is_evaluated(0.1, rate, 1.0, False, 0)
        assert not any(self.rates.values())
        # Topics that went away are remembered for a minute.
        self.is_evaluated(0.1, rate, 100.0, False, 0)
        assert self.throttle.active == 0

    def take_back(self) -> None:
        self.apply(self.throttle.releases())
        assert not self.throttle.must_release

    def apply(self, decisions: Iterable[RateDecision | None]) -> None:
        for made in decisions:
            if made is None or not made.applies:
                continue
            assert not (self.throttle.settings.observe_only and made.bytes_rate is not None)
            if made.slot in self.rates:
                self.rates[made.slot] = made.bytes_rate
            self.judge(made)

    def judge(self, made: RateDecision) -> None:
        """Hold a decision to the bounds of a step."""
        before, rate = self.last.get(made.topic, made.natural_bytes), made.bytes_rate
        if rate is None:
            self.last.pop(made.topic, None)
            return
        assert made.topic != "spared"
        assert rate >= max(LEAST, 0.0999 * made.natural_bytes)
        if made.change is Change.ADJUST:
            lowest = max(LEAST, SETTINGS.min_rate_factor * made.natural_bytes)
            assert abs(rate - before) <= STEP * made.natural_bytes * 1.0001 + 1 or rate <= lowest * 1.0001
        self.last[made.topic] = rate

    @invariant()
    def nothing_fails(self) -> None:
        assert self.throttle.failures == 0


TestAdaptiveThrottle = AdaptiveMachine.TestCase
TestAdaptiveThrottle.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
