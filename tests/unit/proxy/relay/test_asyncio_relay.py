"""The relay on the event loop in virtual time: reasons to pause, permits of watch frames, read time-out and ends."""

import asyncio
import errno

import pytest

from protocol.commands import PONG_FRAME
from protocol.scanner import FrameScanner
from proxy.core.errors import DisconnectCause
from proxy.relay.counters import WatchOvershoot
from proxy.relay.engine import Direction, PauseReason
from tests.support.proxies.walked_relay import KIB, LARGE, MESSAGE, PAUSE_SECONDS, SMALL, Setting, played

TO_BROKER, TO_CLIENT = Direction.TO_BROKER, Direction.TO_CLIENT


def reads(setting: Setting) -> tuple[bool, bool]:
    return setting.relay.client.reading, setting.relay.broker.reading


@pytest.mark.threat("unread-pongs-before-connected")
@played(room=0, unsent=PONG_FRAME)
async def test_bytes_behind_those_of_the_protocol_before_wait_in_a_buffer_that_nobody_else_uses(
    setting: Setting,
) -> None:
    shared = setting.relay.broker.get_buffer(-1).obj
    setting.deliver(MESSAGE)
    assert reads(setting) == (True, False)
    assert setting.relay.broker.get_buffer(-1).obj is not shared
    setting.client.take(len(PONG_FRAME) + len(MESSAGE))
    assert reads(setting) == (True, True)
    assert setting.received == PONG_FRAME + MESSAGE


@played()
async def test_a_pause_outlasts_the_permit_of_a_watch_frame_and_the_permit_the_pause(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.deliver(SMALL)
    await asyncio.sleep(0)
    assert setting.relay.snapshot().paused[TO_CLIENT] == PauseReason.WATCH
    setting.relay.pause(TO_CLIENT, PauseReason.POOL)
    setting.relay.resume(TO_CLIENT, PauseReason.POOL)
    assert setting.received == b""
    assert reads(setting) == (True, False)
    setting.relay.pause(TO_CLIENT, PauseReason.POOL)
    taken.release()
    await asyncio.sleep(0)
    assert setting.received == SMALL
    assert reads(setting) == (True, False)
    setting.relay.resume(TO_CLIENT, PauseReason.POOL)
    assert reads(setting) == (True, True)


@pytest.mark.parametrize("side", ["client", "broker"])
@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (errno.ETIMEDOUT, DisconnectCause.WRITE_STALLED),
        (errno.ECONNRESET, DisconnectCause.CONNECTION_RESET),
        (errno.EPIPE, DisconnectCause.CONNECTION_RESET),
    ],
)
def test_a_peer_that_the_kernel_gave_up_stalled_our_writes(side: str, number: int, cause: DisconnectCause) -> None:
    @played()
    async def play(setting: Setting) -> None:
        endpoint = getattr(setting.relay, side)
        transport = endpoint.transport
        endpoint.connection_lost(OSError(number, "from the kernel"))
        transport.abort()
        await asyncio.sleep(0)
        assert setting.ended == [cause]

    play()


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
async def test_a_permit_that_was_waited_for_is_the_callers_too(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.deliver(LARGE[:100])
    await asyncio.sleep(0)
    taken.release()
    await asyncio.sleep(0)
    assert setting.direct.top_holders(9) == [("me", 100)]


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
async def test_the_end_of_the_client_after_the_grant_leaves_nothing_held(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.deliver(SMALL)
    await asyncio.sleep(0)
    taken.release()
    assert setting.direct.held == len(SMALL)
    setting.relay.client.abort(DisconnectCause.CONNECTION_RESET)
    await asyncio.sleep(0)
    assert setting.direct.held == 0


@played()
async def test_a_crash_of_the_walk_ends_its_own_pair_only(setting: Setting) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("crash of this relay")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FrameScanner, "scan", crash)
        setting.deliver(MESSAGE)
    assert setting.ended == [DisconnectCause.INTERNAL_ERROR]
    assert setting.limits.counters.shared.internal_errors == {"relay": 1}
    setting.limits.counters.shared.internal_errors.clear()


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
    for start in range(1000, len(LARGE), 64 * KIB):
        setting.deliver(LARGE[start : start + 64 * KIB])
    assert setting.direct.held == 0
