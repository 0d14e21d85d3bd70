"""Events of decisions: why producers are slowed, how many are paused, how many topics were forgotten."""

import asyncio

from proxy.overload.samples import OTHER_TOPICS, BacklogSample, BrokerSample
from proxy.relay.rates.slot_books import OTHER
from proxy.relay.topic_slots import SlotSample
from tests.unit.proxy.overload.test_control import ADAPTIVE, OBSERVE, THRESHOLD, FakeRelay, Stage, play


def of(stage: Stage, *names: str) -> list[tuple[object, ...]]:
    return [tuple(event.get(name) for name in names) for event in stage.events]


def test_event_of_a_pause_says_whose_memory_is_short_and_how_many_are_paused() -> None:
    async def act(stage: Stage) -> None:
        await asyncio.sleep(1)
        stage.memory.ratio = 0.9
        await asyncio.sleep(1)
        stage.relays.append(FakeRelay())
        stage.brokers.sample = BrokerSample(90, 100, 0, 0)
        # The minimum of the brokers' heap counts.
        await asyncio.sleep(20)
        stage.brokers.sample, stage.memory.ratio = BrokerSample(10, 100, 0, 0), 0.5
        # The next sample of the brokers comes within 6 s, by its jitter.
        await asyncio.sleep(8)
        assert stage.control.threshold_state == "normal"

    stage = play([FakeRelay() for _ in range(100)], THRESHOLD, act)
    told = of(stage, "throttle_action", "throttle_reasons", "throttle_paused")
    # While some are released, the others are still paused for what paused them.
    assert told == [("pause", 1, 100), ("pause", 1, 101), ("resume", 3, 37), ("resume", 0, 0)]


def test_event_of_observe_only_says_how_many_would_be_paused() -> None:
    async def act(stage: Stage) -> None:
        stage.memory.ratio = 0.9
        await asyncio.sleep(1)

    stage = play([FakeRelay(), FakeRelay()], THRESHOLD | OBSERVE, act)
    assert of(stage, "throttle_action", "throttle_reasons", "throttle_paused")[0] == ("would_pause", 1, 2)


def test_event_of_a_rate_says_what_presses() -> None:
    async def act(stage: Stage) -> None:
        await asyncio.sleep(15)
        stage.brokers.topic = BacklogSample(95, 100)
        await asyncio.sleep(3)
        stage.memory.ratio = 0.9
        await asyncio.sleep(2)
        stage.brokers.topic, stage.memory.ratio = BacklogSample(0, 100), 0.1
        await asyncio.sleep(8)

    stage = play([], ADAPTIVE, act)
    reasons = [event["throttle_reasons"] for event in stage.events]
    assert list(dict.fromkeys(reasons)) == [4, 5, 0]
    assert all(event["throttle_topic"] for event in stage.events)


def test_forgotten_topics_are_told_together() -> None:
    async def act(stage: Stage) -> None:
        await asyncio.sleep(5)
        stage.rates.walk = list  # type: ignore[method-assign]
        await asyncio.sleep(70)

    stage = play([], ADAPTIVE, act)
    assert of(stage, "throttle_action", "throttle_forgotten") == [("forget", 1)]


def test_topics_without_a_name_of_their_own_are_told_as_others() -> None:
    async def act(stage: Stage) -> None:
        def walk() -> list[SlotSample]:
            sent = 1_000_000 * stage.counters.adaptive.evaluations
            return [SlotSample(OTHER, "", sent, sent // 1000, False, 0)]

        stage.rates.walk = walk  # type: ignore[method-assign]
        await asyncio.sleep(10)
        stage.memory.ratio = 0.9
        await asyncio.sleep(2)

    stage = play([], ADAPTIVE, act)
    assert {event["throttle_topic"] for event in stage.events} == {OTHER_TOPICS}
    assert {line["topic"] for line in stage.lines if "publish rate" in line["event"]} == {OTHER_TOPICS}
