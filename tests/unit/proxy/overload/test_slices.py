"""However many topics and connections there are, an iteration of the loop does a bounded number of steps.

Steps are counted, not time: a sample that is looked at, a rate that is set, a relay that is paused.
"""

import asyncio
from collections.abc import Iterator
from heapq import nlargest

from hypothesis import given
from hypothesis import strategies as st

from proxy.overload.bounds import MOST_TOPICS
from proxy.overload.pauses import SLICE as RELAYS_A_TURN
from proxy.overload.slices import SLICE, Largest
from proxy.relay.engine import Direction, PauseReason
from proxy.relay.topic_slots import SlotSample
from tests.unit.proxy.overload.test_control import ADAPTIVE, THRESHOLD, FakeRelay, Stage, play, settings

SHOWN = ADAPTIVE | {"adaptivePublisherThrottlingPerTopicMetricsEnabled": "true"}
OBSERVED = SHOWN | {"adaptivePublisherThrottlingObserveOnly": "true"}
# Walks of different tables may meet: the end of one and the beginning of the next.
MOST_STEPS = 3 * max(SLICE, RELAYS_A_TURN)


class Steps:
    """Counts steps, and the most from one iteration of the running loop into the next."""

    def __init__(self) -> None:
        self.total = self.most = self._lately = 0

    def note(self) -> None:
        if not self._lately:
            asyncio.get_running_loop().call_soon(self._over)
        self.total += 1
        self._lately += 1
        self.most = max(self.most, self._lately)

    def _over(self) -> None:
        self._lately = 0


def test_a_full_table_of_topics_is_slowed_and_released_in_slices() -> None:
    names = [f"persistent://t/n/{number}" for number in range(MOST_TOPICS)]

    async def act(stage: Stage) -> None:
        steps, set_rate = Steps(), stage.rates.set_rate

        def walk() -> Iterator[SlotSample]:
            moved = 1_000_000 * stage.counters.adaptive.evaluations
            for slot, name in enumerate(names):
                steps.note()
                yield SlotSample(slot, name, moved, moved // 1000, False, 1)

        def noted(slot: int, bytes_per_second: float | None, messages_per_second: float | None) -> None:
            steps.note()
            set_rate(slot, bytes_per_second, messages_per_second)

        stage.rates.walk, stage.rates.set_rate = walk, noted  # type: ignore[assignment, method-assign]
        # Two samples make a rate, and the pressure slows everybody at the second.
        stage.memory.ratio = 0.9
        await asyncio.sleep(1.5)
        assert stage.control.active_topics == MOST_TOPICS
        assert len(list(stage.control.topics())) == 100
        stage.control.apply(settings(**OBSERVED))
        await asyncio.sleep(0.4)
        assert (stage.control.active_topics, sum(map(bool, stage.rates.rates.values()))) == (0, 0)
        assert steps.total >= 3 * MOST_TOPICS
        assert steps.most <= 2 * MOST_STEPS

    play([], SHOWN, act)


def test_many_connections_are_paused_and_released_in_slices() -> None:
    steps = Steps()

    class Noted(FakeRelay):
        def pause(self, direction: Direction, reason: PauseReason) -> None:
            steps.note()
            super().pause(direction, reason)

        def resume(self, direction: Direction, reason: PauseReason) -> None:
            steps.note()
            super().resume(direction, reason)

    async def act(stage: Stage) -> None:
        stage.memory.ratio = 0.9
        await asyncio.sleep(2)
        assert all(stage.paused)
        stage.memory.ratio = 0.5
        await asyncio.sleep(1)
        assert 0 < stage.paused.count(True) < len(stage.paused)
        stage.control.apply(settings(**THRESHOLD, overloadThrottleObserveOnly="true"))
        await asyncio.sleep(0.4)
        assert not any(stage.paused)
        assert steps.total >= 2 * len(stage.paused)
        assert steps.most <= 2 * MOST_STEPS

    play([Noted(consumes=number % 3 == 0) for number in range(5000)], THRESHOLD, act)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5))), st.integers(1, 8))
def test_the_largest_are_those_of_a_sort(keys: list[tuple[int, int]], most: int) -> None:
    found = Largest(most)
    for key in keys:
        found.add(key)
    assert list(found) == nlargest(most, keys)
