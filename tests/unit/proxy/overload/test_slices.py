"""However many topics and connections there are, an iteration of the loop does a bounded number of steps.

Steps are counted, not time: an element of a table that is looked at, a rate that is set, a relay that is asked.
"""

import asyncio
from collections.abc import Iterable, Iterator
from heapq import nlargest
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.overload.bounds import MOST_TOPICS
from proxy.overload.pauses import SLICE as RELAYS_A_TURN
from proxy.overload.slices import SLICE, Largest
from proxy.relay.topic_slots import SlotSample, TopicSlots
from tests.unit.proxy.overload.test_control import ADAPTIVE, THRESHOLD, FakeRelay, Stage, play, settings

T = TypeVar("T")
SHARED = ADAPTIVE | {
    "adaptivePublisherThrottlingSharesByBytes": "true", "adaptivePublisherThrottlingPerTopicMetricsEnabled": "true",
}  # fmt: skip
OBSERVED = SHARED | {"adaptivePublisherThrottlingObserveOnly": "true"}
# Walks of different tables may meet in an iteration: the end of one and the beginning of the next.
MOST_STEPS = 3 * SLICE


class Steps:
    """Counts steps, and the most of one iteration of the running loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.total = self.most = 0
        loop: Any = asyncio.get_running_loop()
        run_once = loop._run_once

        def counted() -> None:
            before = self.total
            run_once()
            self.most = max(self.most, self.total - before)

        monkeypatch.setattr(loop, "_run_once", counted)

    def of(self, items: Iterable[T]) -> Iterator[T]:
        for item in items:
            self.total += 1
            yield item


class CountedDict(dict[Any, Any]):
    """A dict whose elements are counted when they are walked."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def __iter__(self) -> Iterator[Any]:
        return self._steps.of(super().__iter__())

    def items(self) -> Any:
        return self._steps.of(super().items())

    def values(self) -> Any:
        return self._steps.of(super().values())

    def popitem(self) -> Any:
        self._steps.total += 1
        return super().popitem()


def test_a_full_table_of_topics_is_slowed_chosen_released_and_forgotten_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.overload.adaptive.FORGET_SECONDS", 0.5)
    names = [f"persistent://t/n/{number}" for number in range(MOST_TOPICS)]

    async def act(stage: Stage) -> None:
        steps, throttle, present = Steps(monkeypatch), stage.control._adaptive, True
        throttle.topics = CountedDict(steps)
        throttle._rated._slots = CountedDict(steps)
        set_rate = stage.rates.set_rate

        def walk() -> Iterator[SlotSample]:
            moved = 1_000_000 * stage.counters.adaptive.evaluations
            for slot, name in steps.of(enumerate(names if present else ())):
                yield SlotSample(slot, name, moved, moved // 1000, False, 1)

        def noted(slot: int, bytes_per_second: float | None, messages_per_second: float | None) -> None:
            steps.total += 1
            set_rate(slot, bytes_per_second, messages_per_second)

        stage.rates.walk, stage.rates.set_rate = walk, noted  # type: ignore[assignment, method-assign]
        # Two samples make a rate, and the pressure slows everybody at the second.
        stage.memory.ratio = 0.9
        await asyncio.sleep(1.5)
        assert throttle.active == MOST_TOPICS
        assert len(list(stage.control.topics())) == 100
        stage.control.apply(settings(**OBSERVED))
        await asyncio.sleep(0.4)
        assert (throttle.active, sum(rate is not None for rate in stage.rates.rates.values())) == (0, 0)
        present = False
        await asyncio.sleep(1)
        assert not throttle.topics
        assert steps.total > 8 * MOST_TOPICS
        assert 0 < steps.most <= MOST_STEPS

    play([], SHARED, act)


def test_many_paused_connections_are_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 5000

    async def act(stage: Stage) -> None:
        steps, throttle, look = Steps(monkeypatch), stage.control._threshold, stage.control._relays.look

        class CountedList(list[Any]):
            def __iter__(self) -> Iterator[Any]:
                return steps.of(super().__iter__())

        async def looked(throttle: Any) -> Any:
            return CountedList(await look(throttle))

        monkeypatch.setattr(stage.control._relays, "look", looked)
        throttle._paused = CountedDict(steps)
        stage.memory.ratio = 0.9
        await asyncio.sleep(2)
        assert stage.paused.count(True) == count
        stage.memory.ratio = 0.5
        await asyncio.sleep(1)
        assert 0 < stage.paused.count(True) < count
        stage.control.apply(settings(**THRESHOLD, overloadThrottleObserveOnly="true"))
        await asyncio.sleep(0.4)
        assert stage.paused.count(True) == 0
        assert steps.total > 5 * count
        # The beginning of the line at the random start of a release is one step.
        assert 0 < steps.most <= 3 * max(SLICE, RELAYS_A_TURN)

    play([FakeRelay(consumes=number % 3 == 0) for number in range(count)], THRESHOLD, act)


class Looking:
    """A client that waits for tokens and counts its looks."""

    def __init__(self, looks: list[int]) -> None:
        self._looks = looks

    def rates_changed(self) -> None:
        self._looks[-1] += 1


def test_clients_that_wait_look_again_in_slices_and_once_for_many_changes() -> None:
    calls: list[Any] = []
    slots = TopicSlots(lambda: 0.0, calls.append)
    looks = [0]
    meters = [Looking(looks) for _ in range(2000)]
    for number, meter in enumerate(meters):
        slots.waits(meter)  # type: ignore[arg-type]
        slots.slot_of(b"t%d" % number)
    for slot in range(1, 2001):
        slots.set_rate(slot, 1.0, 1.0)
    assert looks == [0]
    while calls:
        looks.append(0)
        calls.pop()()
        assert len(calls) <= 1
    assert sum(looks) == 2000
    assert max(looks) == 250


def test_a_client_that_fails_keeps_no_other_from_its_look() -> None:
    class Failing(Looking):
        def rates_changed(self) -> None:
            raise RuntimeError("broken")

    calls: list[Any] = []
    slots = TopicSlots(lambda: 0.0, calls.append)
    looks = [0]
    for meter in (Failing(looks), Looking(looks), Failing(looks), Looking(looks)):
        slots.waits(meter)  # type: ignore[arg-type]
    slots.slot_of(b"t")
    slots.set_rate(1, 1.0, None)
    failures = 0
    while calls:
        try:
            calls.pop()()
        except RuntimeError:
            failures += 1
    assert (failures, looks) == (2, [2])


def test_a_full_table_of_slots_is_looked_at_in_parts() -> None:
    slots = TopicSlots(lambda: 0.0, lambda call: call())
    for number in range(5000):
        slots.books.let_go(slots.slot_of(b"t%d" % number))
    asked, producers = [0], slots.books.producers

    def noted(slot: int) -> int:
        asked[-1] += 1
        return producers(slot)

    slots.books.producers = noted  # type: ignore[method-assign]
    for now in range(3):
        slots.close_unused(float(now))
        asked.append(0)
    assert asked == [2048, 2048, 904, 0]
    for now in range(3):
        slots.close_unused(1000.0 + now)
    assert len(slots) == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5))), st.integers(1, 8))
def test_the_largest_are_those_of_a_sort(keys: list[tuple[int, int]], most: int) -> None:
    found = Largest(most)
    for key in keys:
        found.add(key)
    assert list(found) == nlargest(most, keys)
