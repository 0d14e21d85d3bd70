"""The controller of the adaptive publish throttle in virtual time (A1 to A10)."""

import sys
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest

from proxy.overload.adaptive import AdaptiveSettings, AdaptiveThrottle, Change, RateDecision
from proxy.overload.bounds import TOPIC_BYTES
from proxy.overload.rate_rules import LEAST_BYTES
from proxy.overload.samples import BacklogSample, Marks
from proxy.overload.topic_choice import TopicChoice
from proxy.relay.topic_slots import SlotSample

SETTINGS = AdaptiveSettings(
    interval_seconds=1.0, memory=Marks(0.85, 0.70), backlog=Marks(0.90, 0.75), backlog_limit_bytes=0,
    min_rate_factor=0.10, max_rate_change=0.25, observe_only=False,
    topics=TopicChoice(("*",)), least_bytes=1.0, least_messages=1.0,
)  # fmt: skip
TOPIC = "persistent://public/default/orders"
FULL, NONE = 0.9, 0.1


class Plant:
    """Topics whose counters grow by what their buckets let through; the clock is a number."""

    def __init__(self, settings: AdaptiveSettings = SETTINGS) -> None:
        self.throttle = AdaptiveThrottle(settings)
        self.now = 100.0
        self.moved: dict[str, list[int]] = {}
        self.rates: dict[int, tuple[float | None, float | None]] = {}
        self.changes: list[str] = []

    def cycle(
        self,
        ratio: float | None,
        offered: Mapping[str, float],
        backlogs: Mapping[str, BacklogSample] | None = None,
        seconds: float = 1.0,
        *,
        held: bool = False,
    ) -> list[RateDecision]:
        self.now += seconds
        samples = []
        for slot, (topic, rate) in enumerate(offered.items()):
            bytes_rate, messages_rate = self.rates.get(slot, (None, None))
            passed = min(rate, bytes_rate if bytes_rate is not None else rate)
            moved = self.moved.setdefault(topic, [0, 0])
            moved[0] += int(passed * seconds)
            moved[1] += int(min(rate, messages_rate if messages_rate is not None else rate) * seconds)
            samples.append(SlotSample(slot, topic, moved[0], moved[1], passed < rate, 1))
        found = [made for made in self.throttle.evaluate(self.now, ratio, samples, backlogs or {}, held=held) if made]
        self.set(found)
        return found

    def set(self, decisions: list[RateDecision]) -> None:
        for made in decisions:
            self.changes.append(str(made.change))
            if made.applies:
                self.rates[made.slot] = (made.bytes_rate, made.messages_rate)

    def settle(self, rate: float = 1000.0, cycles: int = 60) -> None:
        for _ in range(cycles):
            self.cycle(NONE, {TOPIC: rate})

    @property
    def rate(self) -> float | None:
        found = self.rates.get(0, (None, None))[0]
        return None if found is None else round(found)


def test_a2_rates_of_a_topic_follow_the_check_values_and_the_release_is_a_ramp() -> None:
    plant, found = Plant(), []
    plant.settle()
    for ratio in [FULL] * 5 + [NONE] * 5:
        plant.cycle(ratio, {TOPIC: 1000.0})
        found.append(plant.rate)
    assert found == [750, 500, 250, 100, 100, 350, 600, 850, 1000, None]


def test_a4_throttle_is_on_above_no_pressure_and_off_only_without_any() -> None:
    plant = Plant()
    plant.settle()
    plant.cycle(0.701, {TOPIC: 1000.0})
    assert plant.throttle.active == 1
    for _ in range(20):
        plant.cycle(0.701, {TOPIC: 1000.0})
    assert plant.throttle.active == 1
    plant.cycle(0.70, {TOPIC: 1000.0})
    plant.cycle(0.70, {TOPIC: 1000.0})
    assert plant.throttle.active == 0
    assert plant.rate is None


def test_a5_topic_without_a_baseline_is_not_throttled_in_its_first_cycles() -> None:
    plant = Plant()
    plant.cycle(FULL, {TOPIC: 1000.0})
    assert plant.rate is None
    # A rate needs two samples.
    plant.cycle(FULL, {TOPIC: 1000.0})
    assert plant.rate is not None


def test_a7_observe_only_computes_and_applies_nothing() -> None:
    plant = Plant(replace(SETTINGS, observe_only=True))
    plant.settle()
    found = plant.cycle(FULL, {TOPIC: 1000.0})
    assert [(made.change, made.applies) for made in found] == [(Change.WOULD_ACTIVATE, False)]
    assert found[0].bytes_rate == pytest.approx(750, rel=0.01)
    assert (plant.throttle.active, plant.throttle.activations, plant.rate) == (0, 0, None)


def test_natural_rate_is_kept_while_one_read_makes_a_debt_of_many_cycles() -> None:
    plant = Plant()
    plant.settle()
    plant.cycle(FULL, {TOPIC: 1000.0})
    moved, held = plant.moved[TOPIC], 0
    for cycle in range(60):
        # A read takes the tokens of three cycles; in the others nobody is read, and no bucket runs dry.
        moved[0], moved[1] = moved[0] + 300 * (cycle % 3 == 0), moved[1] + 300 * (cycle % 3 == 0)
        plant.now += 1.0
        sample = SlotSample(0, TOPIC, moved[0], moved[1], cycle % 3 == 0, 1)
        held += sum(made is not None for made in plant.throttle.evaluate(plant.now, FULL, [sample], {}))
    assert held
    assert plant.throttle.topics[TOPIC].natural_bytes == pytest.approx(1000, rel=0.01)


def test_natural_rate_is_kept_while_the_threshold_throttle_holds_producers_up() -> None:
    plant = Plant()
    plant.settle()
    for _ in range(30):
        plant.cycle(NONE, {TOPIC: 0.0}, held=True)
    assert plant.throttle.topics[TOPIC].natural_bytes == pytest.approx(1000, rel=0.01)
    plant.cycle(NONE, {TOPIC: 0.0})
    assert plant.throttle.topics[TOPIC].natural_bytes < 960


def test_backlog_alone_throttles_its_topic_only() -> None:
    plant, other = Plant(), TOPIC + "-2"
    for _ in range(60):
        plant.cycle(NONE, {TOPIC: 1000.0, other: 1000.0})
    plant.cycle(NONE, {TOPIC: 1000.0, other: 1000.0}, {other: BacklogSample(95, 100)})
    assert [plant.rates.get(slot) is not None for slot in (0, 1)] == [False, True]
    assert plant.throttle.topics[other].backlog_pressure == 1.0


@pytest.mark.parametrize(("own_limit", "pressure"), [(0, 0.0), (1000, 1.0)])
def test_backlog_without_a_quota_uses_the_own_limit_or_none(own_limit: int, pressure: float) -> None:
    found = replace(SETTINGS, backlog_limit_bytes=own_limit).backlog_pressure(BacklogSample(950, -1))
    assert found == pressure


@pytest.mark.threat("reconnect-escapes-rate")
def test_topic_that_comes_back_at_another_slot_keeps_its_rate_and_its_baseline() -> None:
    plant = Plant()
    plant.settle()
    for _ in range(4):
        plant.cycle(FULL, {TOPIC: 1000.0})
    plant.cycle(FULL, {})
    plant.cycle(FULL, {"another": 10.0, TOPIC: 1000.0})
    assert plant.throttle.topics[TOPIC].natural_bytes == pytest.approx(1000, rel=0.01)
    assert plant.rates[1][0] == pytest.approx(100, rel=0.01)
    assert plant.rates[0] == (None, None)


@pytest.mark.parametrize("seconds", [-50.0, 0.0, 3600.0])
def test_clock_that_jumps_teaches_nothing_and_moves_nothing(seconds: float) -> None:
    plant = Plant()
    plant.settle()
    natural = plant.throttle.topics[TOPIC].natural_bytes
    found = plant.cycle(FULL, {TOPIC: 1000.0}, seconds=seconds)
    assert found == []
    assert plant.throttle.topics[TOPIC].natural_bytes == natural


def test_garbage_of_one_topic_is_counted_and_the_others_go_on() -> None:
    plant = Plant()
    plant.settle()
    plant.now += 1
    garbage = SlotSample(5, "bad", "x", 0, False, 1)  # type: ignore[arg-type]
    plant.throttle.topics["bad"] = replace(plant.throttle.topics[TOPIC], slot=5)
    good = SlotSample(0, TOPIC, plant.moved[TOPIC][0] + 1000, plant.moved[TOPIC][1] + 1000, False, 1)
    found = [made for made in plant.throttle.evaluate(plant.now, FULL, [garbage, good], {}) if made]
    assert plant.throttle.failures == 1
    assert [made.topic for made in found] == [TOPIC]


@pytest.mark.threat("million-throttled-topics")
def test_topics_are_bounded_and_each_takes_what_the_budget_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.overload.adaptive.MOST_TOPICS", 3000)
    throttle = AdaptiveThrottle(SETTINGS)
    tracemalloc.start()
    try:
        # The table of slots has each name once.
        names = [f"{slot:0512}" for slot in range(3000)] + ["x"] * 6000
        before = tracemalloc.get_traced_memory()[0]
        for cycle in range(1, 5):
            samples = (SlotSample(slot, names[slot], cycle * 1_000_000, cycle * 1000, True, 1) for slot in range(9000))
            for _ in throttle.evaluate(float(cycle), FULL, samples, {}):
                pass
        held = tracemalloc.get_traced_memory()[0] - before + sum(map(sys.getsizeof, names[:3000]))
    finally:
        tracemalloc.stop()
    assert len(throttle.topics) == throttle.active == 3000
    assert held <= 3000 * TOPIC_BYTES


# --- topics that begin under pressure -------------------------------------------------------------


REAL = replace(SETTINGS, least_bytes=LEAST_BYTES, least_messages=100.0)


@pytest.mark.threat("new-topic-escapes-rate")
def test_first_burst_under_pressure_is_no_natural_rate() -> None:
    plant, new = Plant(REAL), TOPIC + "-new"
    for _ in range(60):
        plant.cycle(NONE, {"": 0.0, TOPIC: 1e6})
    for _ in range(5):
        plant.cycle(FULL, {"": 0.0, TOPIC: 1e6, new: 1e8})
    assert plant.throttle.topics[new].natural_bytes <= 1e6
    assert (plant.rates[2][0] or 1e9) <= (plant.rates[1][0] or 0) * 1.05


def test_new_topic_under_pressure_grows_slowly_and_only_to_the_middle() -> None:
    plant, new, found = Plant(REAL), TOPIC + "-new", []
    for _ in range(60):
        plant.cycle(NONE, {"": 0.0, TOPIC: 1e7})
    others = {f"{TOPIC}-{number}": 1e8 for number in range(20)}
    for _ in range(200):
        plant.cycle(FULL, {"": 0.0, TOPIC: 1e7, **others, new: 1e8})
        found.append(plant.throttle.topics[new].natural_bytes)
    assert all(before <= after <= 1.0501 * before for before, after in pairwise(found))
    assert found[0] < 1e6 < found[-1] <= 1e7


def test_new_topic_has_no_limit_without_pressure_in_observe_only_or_if_it_is_spared() -> None:
    spared = replace(REAL, topics=TopicChoice(("*", "!*new")))
    for chosen, ratio in ((REAL, NONE), (replace(REAL, observe_only=True), FULL), (spared, FULL)):
        plant = Plant(chosen)
        for _ in range(3):
            plant.cycle(ratio, {"": 0.0})
        assert plant.throttle.begin(1, TOPIC + "-new") is None
        plant.cycle(ratio, {"": 0.0, TOPIC + "-new": 1e6})
        assert (plant.rates.get(1), plant.throttle.active) == (None, 0)


def test_limit_of_a_new_topic_whose_slot_is_freed_before_any_sample_goes_with_the_slot() -> None:
    plant = Plant(REAL)
    for _ in range(3):
        plant.cycle(FULL, {"": 0.0})
    assert plant.throttle.begin(1, TOPIC) is not None
    found = plant.cycle(FULL, {"": 0.0})
    assert [(made.slot, made.change) for made in found if made.topic == TOPIC] == [(1, Change.RELEASE)]
    assert plant.throttle.active == 0
