"""The native engine's side in Python: events in bounded steps, permits of frames, a clock that looks at the threads."""

import asyncio
from itertools import count
from typing import Final

import pytest

from proxy.core.counters import INTERNAL_ERRORS
from proxy.core.errors import DisconnectCause
from proxy.relay.native_api import PairEnd, PairEvent
from proxy.relay.native_engine import (
    EVENTS_A_STEP,
    EVENTS_SECONDS,
    LOOKS_UNTIL_STUCK,
    STUCK_SECONDS,
    NativeRelay,
)
from proxy.relay.topic_slots import TopicSlots
from proxy.relay.watch_limits import WatchOvershoot
from tests.support.native import offered
from tests.support.proxies.counted import counted, counted_by
from tests.support.proxies.native_pairs import HOLD_SECONDS, KIB, Bench, played

FRAME: Final = 10 * KIB


def overshoots(at: Bench) -> dict[str, float]:
    return {why: count for why, count in counted_by(at.counters, "watch_overshoots").items() if count}


# --- permits of frames ----------------------------------------------------------------------------


@played
async def test_a_permit_ends_after_the_longest_hold_although_the_client_takes_nothing(at: Bench) -> None:
    relay = await at.joined()
    await at.told(PairEvent.FRAMES, relay, 1, 0, 1, FRAME, 0)
    await asyncio.sleep(HOLD_SECONDS + 0.1)
    assert at.direct.held == 0
    assert overshoots(at) == {WatchOvershoot.HELD_TOO_LONG: 1}


@played
async def test_frames_that_passed_unasked_are_counted_by_their_number(at: Bench) -> None:
    relay = await at.joined()
    await at.told(PairEvent.PASSED, relay, 0, 2, 40, FRAME)
    assert counted_by(at.counters, "watch_frames") == {"success": 2, "update": 40}
    assert counted(at.counters, "watch_bytes") == FRAME
    assert overshoots(at) == {WatchOvershoot.TOO_MANY: 42}


# --- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (PairEnd.CLIENT_FIN, DisconnectCause.CLIENT_CLOSED),
        (PairEnd.BROKER_FIN, DisconnectCause.BROKER_CLOSED),
        (PairEnd.CLIENT_ERROR, DisconnectCause.CONNECTION_RESET),
        (PairEnd.BROKER_ERROR, DisconnectCause.CONNECTION_RESET),
        (PairEnd.WRITE_STALLED, DisconnectCause.WRITE_STALLED),
        (PairEnd.PANIC, DisconnectCause.INTERNAL_ERROR),
    ],
)
def test_every_end_has_its_cause_and_counts_the_last_bytes(end: PairEnd, cause: DisconnectCause) -> None:
    @played
    async def play(at: Bench) -> None:
        relay = await at.joined()
        at.pairs.counted[relay.pair] = (10, 20)
        relay.tick(at.engine.loop.time())
        await at.told(PairEvent.ENDED, relay, end, 0, 11, 22)
        assert at.causes == [cause]
        assert counted_by(at.counters, "relay_bytes") == {"to_broker": 11, "to_client": 22}
        assert relay.snapshot().moved == (11, 22)
        found = counted_by(at.counters, "internal_errors")
        assert dict(found) == ({"relay_engine": 1} if end is PairEnd.PANIC else {})

    play()


@played
async def test_a_relay_whose_own_code_fails_ends_alone(at: Bench) -> None:
    relay, other = await at.joined(), await at.joined()
    # A cause that no thread sends.
    at.pairs.waiting.append((PairEvent.ENDED, other.pair, 99, 0, 0, 0, 0, ""))
    at.hear()
    at.pairs.close_fds(2)
    await at.told(PairEvent.FRAMES, relay, 1, 0, 1, FRAME, 0)
    assert at.pairs.asked[-1] == ("pass", relay.pair, 1)
    assert counted_by(at.counters, "internal_errors") == {"relay": 1}
    assert at.causes == [DisconnectCause.INTERNAL_ERROR]


@played
async def test_a_stop_tells_every_relay_of_its_end(at: Bench) -> None:
    relays = [await at.joined() for _ in range(3 * EVENTS_A_STEP)]
    await at.engine.stop()
    assert [relay for relay, _ in at.ended] == relays
    assert set(at.causes) == {DisconnectCause.SHUTDOWN}
    await at.engine.stop()
    assert at.pairs.stopped == 1


# --- the loop's time ------------------------------------------------------------------------------


def spend(at: Bench) -> None:
    """Use up the time of this iteration of the loop."""
    at.engine.loop_budget.spent()
    at.engine.loop_budget.charge(1.0)


@pytest.mark.threat("native-watch-flood")
@played
async def test_events_have_a_little_time_when_the_loop_has_no_time_for_more(at: Bench) -> None:
    relay = await at.joined()
    looks = count(1)
    at.engine.loop_budget.now = lambda: next(looks) * EVENTS_SECONDS / 5
    spend(at)
    for number in range(9 * EVENTS_A_STEP):
        at.pairs.tell(PairEvent.PASSED, relay.pair, 0, 0, 1, number)
    at.hear()
    assert EVENTS_A_STEP < 9 * EVENTS_A_STEP - len(at.pairs.waiting) < 5 * EVENTS_A_STEP
    await asyncio.sleep(0.1)
    assert not at.pairs.waiting


@pytest.mark.threat("tiny-relay-frames")
@played
async def test_frames_are_asked_about_in_turns_by_network_when_the_loop_has_no_time(at: Bench) -> None:
    crowd = [await at.joined() for _ in range(2 * EVENTS_A_STEP)]
    neighbour = await at.joined(network="192.0.2.2")
    for relay in (*crowd, neighbour):
        at.pairs.tell(PairEvent.FRAMES, relay.pair, 1, 0, 1, FRAME, 0)
    spend(at)
    at.hear()
    # All are heard of, and none is answered yet.
    assert (at.pairs.waiting, at.pairs.asked) == ([], [])
    await asyncio.sleep(0.1)
    answered = [asked[1] for asked in at.pairs.asked]
    assert answered.index(neighbour.pair) == 1
    assert set(answered) == {relay.pair for relay in (*crowd, neighbour)}
    for relay in (*crowd, neighbour):
        await at.told(PairEvent.DRAINED, relay, 1)


def produce(at: Bench, relays: list[NativeRelay]) -> None:
    """Have each client send a PRODUCER of a topic of its own."""
    for relay in relays:
        at.pairs.topics[relay.pair, 1] = f"persistent://demo/ns/{relay.pair}".encode()
        at.pairs.tell(PairEvent.PRODUCER, relay.pair, 1)


def answered(at: Bench) -> list[object]:
    return [asked[1] for asked in at.pairs.asked if asked[0] == "assign"]


def count_topics(at: Bench) -> None:
    at.engine.slots = TopicSlots(at.engine.loop.time, offered("SlotBooks")())


@played
async def test_producers_get_their_slots_in_turns_by_network_when_the_loop_has_no_time(at: Bench) -> None:
    count_topics(at)
    crowd = [await at.joined() for _ in range(2 * EVENTS_A_STEP)]
    neighbour = await at.joined(network="192.0.2.2")
    produce(at, [*crowd, neighbour])
    spend(at)
    at.hear()
    # All are heard of, and none is answered yet.
    assert (at.pairs.waiting, at.pairs.asked) == ([], [])
    await asyncio.sleep(0.1)
    assert answered(at).index(neighbour.pair) == 1
    assert set(answered(at)) == {relay.pair for relay in (*crowd, neighbour)}


@played
async def test_a_producer_of_a_pair_that_ends_before_its_turn_gets_no_slot(at: Bench) -> None:
    count_topics(at)
    assert at.engine.slots is not None
    relay = await at.joined()
    produce(at, [relay])
    spend(at)
    at.hear()
    await at.told(PairEvent.ENDED, relay, PairEnd.CLIENT_FIN)
    await asyncio.sleep(0.1)
    assert (at.pairs.asked, len(at.engine.slots), len(at.engine.loop_budget)) == ([], 0, 0)


@played
async def test_a_look_that_fails_ends_its_own_relay_only(at: Bench) -> None:
    first, second = await at.joined(), await at.joined()
    for relay in (first, second):
        at.engine.open_frame(relay)

    def look(relay: NativeRelay) -> bool:
        if relay is first:
            raise ValueError("a fault of ours")
        return True

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(NativeRelay, "rest_passed", look)
        await at.engine.look_at_frames()
    assert at.pairs.asked == [("abort", first.pair)]
    assert counted_by(at.counters, "internal_errors") == {"relay": 1}


# --- the threads ----------------------------------------------------------------------------------


@played
async def test_a_thread_that_stands_still_is_told_of_until_it_goes_on(at: Bench) -> None:
    at.pairs.beating = [3, int(STUCK_SECONDS * 1000) + 1500]
    for _ in range(LOOKS_UNTIL_STUCK - 1):
        at.engine.tick()
        # One look may be late because the whole machine stood still.
        assert at.engine.stuck is None
    for _ in range(3):
        at.engine.tick()
    assert at.engine.stuck == "relay thread 1 stands still for 6 s"
    assert at.log.getvalue().count(b"a relay thread stands still") == 1
    at.pairs.beating = [3, 5]
    at.engine.tick()
    assert at.engine.stuck is None


@played
async def test_a_process_that_ends_in_a_hurry_waits_for_no_thread(at: Bench) -> None:
    at.engine.abandon()
    assert not at.engine.running
    await asyncio.get_running_loop().run_in_executor(None, at.pairs.was_stopped.wait)
    at.engine.abandon()
    assert at.pairs.stopped == 1


# --- bodies ---------------------------------------------------------------------------------------


@played
async def test_the_owner_of_bodies_hears_of_them_and_of_the_threads(at: Bench) -> None:
    assert at.bodies.heard == [("started", at.pairs)]
    at.bodies.heard.clear()
    at.pairs.tell(PairEvent.BODY_MOVED, 7, 1000)
    at.pairs.tell(PairEvent.BODY_ENDED, 8, 3000, 0, 0)
    at.pairs.tell(PairEvent.BODY_ENDED, 7, 2000, 32, PairEnd.CLIENT_ERROR)
    at.hear()
    assert at.bodies.heard == [("moved", 7, 1000), ("ended", 8, 3000, 0), ("ended", 7, 2000, 32)]
    at.engine.tick()
    assert at.bodies.heard[3:] == [("catch up",)]
    assert counted_by(at.counters, "internal_errors") == {}
    # What the threads tell at their end is heard before the end itself.
    at.pairs.tell(PairEvent.BODY_ENDED, 9, 0, 0, PairEnd.OURS)
    await at.engine.stop()
    assert at.bodies.heard[4:] == [("ended", 9, 0, 0), ("stopped",)]


@played
async def test_an_event_that_cannot_be_handled_costs_no_other(at: Bench) -> None:
    first, second = await at.joined(), await at.joined()

    def fail(*_: object) -> None:
        raise ValueError

    at.bodies.body_moved = fail  # type: ignore[assignment, method-assign]
    at.pairs.tell(PairEvent.BODY_MOVED, 1, 5)
    at.pairs.tell(PairEvent.ENDED, first.pair, PairEnd.OURS)
    await at.told(PairEvent.ENDED, second, PairEnd.OURS)
    assert len(at.ended) == 2
    assert counted_by(at.counters, "internal_errors") == {"relay_engine": 1}
    at.counters[INTERNAL_ERRORS].clear()


@played
async def test_a_panic_in_a_body_is_counted(at: Bench) -> None:
    at.pairs.tell(PairEvent.BODY_ENDED, 7, 2000, 0, PairEnd.PANIC)
    at.hear()
    assert at.bodies.heard[1:] == [("ended", 7, 2000, 0)]
    assert sum(counted_by(at.counters, "internal_errors").values()) == 1
