"""The permits and pauses of a walked relay in virtual time: how much, how long, how often."""

import asyncio

import pytest

from proxy.relay.counters import WatchOvershoot
from proxy.relay.watch_limits import SHARE_PART
from tests.support.proxies.walked_relay import (
    HOLD_SECONDS,
    KIB,
    LARGE,
    LIMIT,
    MESSAGE,
    PAUSE_SECONDS,
    SMALL,
    WINDOW,
    Setting,
    played,
)
from tests.support.sockets.frames import ping


@played()
async def test_other_frames_pass_without_a_permit(setting: Setting) -> None:
    setting.deliver(ping() + MESSAGE)
    assert setting.received == ping() + MESSAGE
    assert setting.direct.statistics().granted == 0


@played()
async def test_a_watch_frame_of_one_read_passes_under_a_permit_of_its_size(setting: Setting) -> None:
    setting.deliver(MESSAGE + SMALL + MESSAGE)
    assert setting.received == MESSAGE + SMALL + MESSAGE
    assert setting.direct.statistics().peak_held == len(SMALL)
    assert setting.direct.held == 0


@played()
async def test_bytes_that_the_client_takes_at_once_hold_nothing(setting: Setting) -> None:
    assert len(LARGE) > 5 * WINDOW
    setting.deliver_all(LARGE[:-1])
    assert setting.direct.held == 0
    setting.deliver(LARGE[-1:] + MESSAGE)
    assert setting.direct.held == 0
    assert setting.direct.statistics().peak_held == 64 * KIB
    assert setting.received == LARGE + MESSAGE
    await asyncio.sleep(HOLD_SECONDS + 1)
    assert setting.overshoots == {}


@played()
async def test_bytes_that_were_only_announced_hold_nothing(setting: Setting) -> None:
    setting.deliver(LARGE[:14])
    assert setting.direct.held == 0
    assert setting.direct.statistics().peak_held == 14


@played(room=64 * KIB)
async def test_bytes_inside_a_frame_that_the_client_leaves_lying_take_a_permit(setting: Setting) -> None:
    setting.deliver(LARGE[: 64 * KIB])
    assert setting.direct.held == 0
    setting.deliver(LARGE[64 * KIB : 128 * KIB])
    assert setting.direct.held == setting.limits.held_bytes == 64 * KIB
    setting.client.take(1 << 40)
    assert setting.direct.held == setting.limits.held_bytes == 0
    setting.deliver_all(LARGE[128 * KIB :])
    assert setting.received == LARGE


@played(room=64 * KIB)
async def test_without_memory_bytes_inside_a_frame_pass_and_are_counted(setting: Setting) -> None:
    setting.deliver(LARGE[: 64 * KIB])
    taken = setting.exhaust()
    setting.deliver(LARGE[64 * KIB : 128 * KIB])
    assert setting.overshoots == {WatchOvershoot.INSIDE_FRAME: 1}
    setting.client.take(1 << 40)
    setting.deliver_all(LARGE[128 * KIB :] + MESSAGE)
    assert setting.received == LARGE + MESSAGE
    taken.release()


@played(room=0)
async def test_frames_for_watchers_leave_most_of_the_memory_to_lists(setting: Setting) -> None:
    others = LIMIT // SHARE_PART - len(SMALL) + 1
    setting.limits.held_bytes += others
    setting.deliver(SMALL)
    assert setting.direct.held == 0
    setting.client.take(1 << 40)
    assert setting.received == SMALL
    assert setting.overshoots == {WatchOvershoot.SHARE: 1}
    setting.limits.held_bytes -= others


@played(room=0)
async def test_a_permit_is_held_until_the_client_has_taken_the_frame(setting: Setting) -> None:
    setting.deliver(SMALL + MESSAGE)
    assert setting.direct.held == len(SMALL)
    setting.client.take(len(SMALL) + len(MESSAGE) - 1)
    assert setting.direct.held == len(SMALL)
    setting.client.take(1)
    assert setting.direct.held == 0
    assert not setting.paused()


@played()
async def test_watch_frames_of_one_read_share_a_permit(setting: Setting) -> None:
    setting.deliver(SMALL * 10)
    statistics = setting.direct.statistics()
    assert (statistics.granted, statistics.peak_held) == (1, 10 * len(SMALL))
    assert (setting.watch.updates, setting.watch.frame_bytes) == (10, 10 * len(SMALL))


@played(room=0)
async def test_a_permit_is_the_callers(setting: Setting) -> None:
    setting.deliver(LARGE[: WINDOW // 2])
    assert setting.direct.top_holders(9) == [("me", WINDOW // 2)]


@played(room=0)
async def test_a_permit_that_was_waited_for_is_the_callers_too(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.deliver(LARGE[:100])
    await asyncio.sleep(0)
    taken.release()
    await asyncio.sleep(0)
    assert setting.direct.top_holders(9) == [("me", 100)]


@played()
async def test_a_large_frame_is_read_into_the_large_buffers_and_its_bytes_are_counted(setting: Setting) -> None:
    setting.deliver(LARGE[: 64 * KIB])
    assert len(setting.relay.broker.get_buffer(-1)) == WINDOW
    setting.deliver(LARGE[64 * KIB : 64 * KIB + 10])
    assert len(setting.relay.broker.get_buffer(-1)) == 64 * KIB
    setting.relay.tick(0.0)
    assert setting.limits.counters.relay_bytes_to_client == 64 * KIB + 10


@played()
async def test_without_memory_what_is_before_the_frame_passes_and_the_rest_waits(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.deliver(MESSAGE + SMALL + MESSAGE)
    await asyncio.sleep(0)
    assert setting.received == MESSAGE
    assert setting.paused()
    assert setting.relay.client.reading
    assert setting.direct.queue_size == 1
    await asyncio.sleep(PAUSE_SECONDS / 2)
    taken.release()
    await asyncio.sleep(0)
    assert setting.received == MESSAGE + SMALL + MESSAGE
    assert not setting.paused()
    assert setting.watch.pauses == 1
    assert setting.watch.pause_seconds == pytest.approx(PAUSE_SECONDS / 2)
    assert setting.overshoots == {}


@played()
async def test_after_the_longest_pause_a_frame_passes_and_is_counted(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.deliver(LARGE[: WINDOW // 2])
    await asyncio.sleep(PAUSE_SECONDS - 0.1)
    assert setting.received == b""
    await asyncio.sleep(0.2)
    setting.deliver_all(LARGE[WINDOW // 2 :])
    assert setting.received == LARGE
    assert setting.overshoots == {WatchOvershoot.PAUSE_OVER: 1}
    assert setting.direct.held == LIMIT
    taken.release()


@played()
async def test_a_connection_is_paused_for_half_of_the_time_at_most(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.deliver(SMALL)
    await asyncio.sleep(PAUSE_SECONDS + 0.1)
    # A hundred watchers on one connection must not outlast its keep-alive.
    for _ in range(100):
        setting.deliver(SMALL)
    assert setting.received == SMALL * 101
    assert setting.overshoots == {WatchOvershoot.PAUSE_OVER: 1, WatchOvershoot.PAUSED_BEFORE: 100}
    await asyncio.sleep(PAUSE_SECONDS)
    setting.deliver(SMALL)
    assert setting.received == SMALL * 101
    taken.release()


@played()
async def test_the_longest_pause_may_change_while_a_relay_lives(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.limits.max_pause_seconds = 0
    setting.deliver(SMALL)
    assert setting.received == SMALL
    assert setting.overshoots == {WatchOvershoot.PAUSE_OVER: 1}
    assert setting.watch.pauses == 0
    taken.release()


@played()
async def test_a_relay_asks_for_no_memory_while_the_switch_is_off(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.limits.enabled = False
    setting.deliver(SMALL)
    setting.limits.enabled = True
    taken.release()
    setting.deliver(SMALL)
    assert setting.received == SMALL * 2
    assert setting.overshoots == {}
    assert setting.direct.statistics().granted == 2


@played(max_queue=1)
async def test_with_a_full_queue_a_frame_passes_at_once(setting: Setting) -> None:
    taken = setting.exhaust()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(setting.direct.acquire(1))
        await asyncio.sleep(0)
        setting.deliver(SMALL)
        await asyncio.sleep(0.01)
        assert setting.received == SMALL
        assert setting.overshoots == {WatchOvershoot.QUEUE_FULL: 1}
        taken.release()
    waiting.result().release()


@played()
async def test_a_limiter_that_closes_lets_frames_pass(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.deliver(SMALL)
    await asyncio.sleep(0)
    setting.direct.close()
    await asyncio.sleep(0.01)
    setting.deliver(SMALL)
    assert setting.received == SMALL * 2
    assert setting.overshoots == {WatchOvershoot.CLOSED: 2}
    taken.release()


@played(room=10)
async def test_a_frame_that_its_client_never_takes_gives_its_memory_back(setting: Setting) -> None:
    setting.deliver(SMALL)
    await asyncio.sleep(HOLD_SECONDS - 0.1)
    assert setting.direct.held == len(SMALL)
    await asyncio.sleep(0.2)
    assert setting.direct.held == 0
    assert setting.overshoots == {WatchOvershoot.HELD_TOO_LONG: 1}
    setting.client.take(1 << 40)
    assert setting.received == SMALL
    assert not setting.paused()


@played(room=len(MESSAGE) - 1)
async def test_after_a_stall_nothing_is_read_before_the_frame_itself_has_left(setting: Setting) -> None:
    setting.deliver(MESSAGE + SMALL)
    setting.client.take(1)
    assert setting.direct.held == len(SMALL)
    assert setting.paused()
    setting.client.take(len(SMALL))
    assert not setting.paused()
    assert setting.received == MESSAGE + SMALL


@played(room=0)
async def test_who_does_not_read_stands_in_no_queue(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.deliver(MESSAGE + SMALL)
    await asyncio.sleep(0.01)
    assert setting.direct.queue_size == 0
    setting.client.take(len(MESSAGE))
    assert setting.paused()
    await asyncio.sleep(0.01)
    assert setting.direct.queue_size == 1
    taken.release()
    await asyncio.sleep(0)
    assert setting.paused()
    setting.client.take(len(SMALL))
    assert setting.received == MESSAGE + SMALL


@played()
async def test_a_transport_that_drains_for_its_own_reasons_asks_for_no_second_permit(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.deliver(SMALL)
    await asyncio.sleep(0)
    setting.relay.client.resume_writing()
    assert setting.direct.queue_size == 1
    taken.release()
    await asyncio.sleep(0)
    assert setting.received == SMALL


@played(room=len(SMALL) - 5)
async def test_the_permit_of_one_frame_ends_before_the_next_is_asked_for(setting: Setting) -> None:
    setting.deliver(SMALL)
    # A transport may deliver once more after a pause.
    setting.deliver(SMALL)
    assert setting.direct.statistics().granted == 1
    setting.client.take(1 << 40)
    statistics = setting.direct.statistics()
    assert (statistics.granted, statistics.peak_held) == (2, len(SMALL))
    assert setting.received == SMALL * 2


@played()
async def test_what_is_delivered_once_more_after_a_pause_keeps_its_place(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.deliver(MESSAGE + SMALL)
    setting.deliver(MESSAGE + LARGE[:1000])
    await asyncio.sleep(0)
    taken.release()
    await asyncio.sleep(0)
    assert setting.received == MESSAGE + SMALL + MESSAGE + LARGE[:1000]
    # What was asked for before the second read is what was held.
    assert setting.direct.statistics().granted == 2
    assert setting.direct.held == 0
    setting.deliver_all(LARGE[1000:])
    assert setting.direct.held == 0
