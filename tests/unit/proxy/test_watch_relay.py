"""The pauses of a walked relay in virtual time: how long, how often, and what ends them early."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from proxy.counters import Counters, WatchOvershoot
from proxy.errors import DisconnectCause
from proxy.relay import Relay
from proxy.transport import SharedReadBuffer
from proxy.watch_limits import WatchLimits
from proxy.watch_relay import WatchedRelay
from tests.support.endpoints import hangup_watcher
from tests.support.frames import ping, send, watch_success, watch_update
from tests.support.loops import run_virtual
from tests.support.memory_transport import MemoryTransport

KIB = 1024
LIMIT, WINDOW = 1000 * KIB, 128 * KIB
PAUSE_SECONDS, HOLD_SECONDS = 10.0, 28.0
MESSAGE = send(b"payload")
SMALL = watch_update(1, ["persistent://a/b/c"])
LARGE = watch_success(1, [f"persistent://a/b/{number:0100}" for number in range(8 * KIB)])


class Setting:
    """A walked relay between two memory transports, over a direct limiter of its own."""

    def __init__(self, relay: WatchedRelay, limits: WatchLimits, client: MemoryTransport) -> None:
        self.relay = relay
        self.limits = limits
        self.direct = limits.direct
        self.client = client
        self.watch = limits.counters.watch
        self.ended: list[DisconnectCause] = []

    def exhaust(self) -> Permit:
        permit = self.direct.try_acquire(LIMIT)
        assert permit is not None
        return permit

    def deliver(self, data: bytes) -> None:
        """Let the broker's bytes arrive as one read."""
        place = self.relay.broker.get_buffer(-1)
        assert len(data) <= len(place)
        place[: len(data)] = data
        self.relay.broker.buffer_updated(len(data))

    def deliver_all(self, data: bytes, read_bytes: int = 64 * KIB) -> None:
        for start in range(0, len(data), read_bytes):
            assert not self.paused()
            self.deliver(data[start : start + read_bytes])

    def paused(self) -> bool:
        return not self.relay.broker.reading

    @property
    def received(self) -> bytes:
        return bytes(self.client.peer_bytes)

    @property
    def overshoots(self) -> dict[str, int]:
        return {why: count for why, count in self.watch.overshoots.items() if count}


@asynccontextmanager
async def walked(
    room: int = 1 << 40, max_queue: int = 100, first: bytes = b"", exhausted: bool = False, **settings: Any
) -> AsyncIterator[Setting]:
    loop = asyncio.get_running_loop()
    direct = AsyncSemaphore("direct", LIMIT, max_queue=max_queue, timeout_seconds=60, clock=loop)
    limits = WatchLimits(
        direct,
        Counters(DisconnectCause),
        **{
            "window_bytes": WINDOW,
            "enabled": True,
            "max_pause_seconds": PAUSE_SECONDS,
            "longest_hold_seconds": HOLD_SECONDS,
        }
        | settings,
    )
    taken = direct.try_acquire(LIMIT) if exhausted else None
    ended: list[DisconnectCause] = []
    async with hangup_watcher() as watcher:
        relay = WatchedRelay(
            loop,
            SharedReadBuffer(WINDOW),
            watcher,
            limits.counters,
            75.0,
            lambda _, cause: ended.append(cause),
            watch=limits,
            key="me",
        )
        client, broker = MemoryTransport(loop, room), MemoryTransport(loop)
        relay.start(client, broker, first, b"")
        setting = Setting(relay, limits, client)
        setting.ended = ended
        yield setting
        relay.abort(DisconnectCause.SHUTDOWN)
        await asyncio.sleep(1)
        if taken is not None:
            taken.release()
        assert (direct.held, direct.queue_size, len(watcher)) == (0, 0, 0)
        assert not limits.counters.internal_errors


Play = Callable[[Setting], Any]


def played(**settings: Any) -> Callable[[Play], Callable[[], None]]:
    """Run a test's coroutine in virtual time."""

    def wrap(play: Play) -> Callable[[], None]:
        async def main() -> None:
            async with walked(**settings) as setting:
                await play(setting)

        def test() -> None:
            run_virtual(main())

        return test

    return wrap


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
async def test_a_permit_is_held_until_the_last_byte_and_never_above_the_window(setting: Setting) -> None:
    assert len(LARGE) > 5 * WINDOW
    setting.deliver_all(LARGE[:-1])
    assert setting.direct.held == WINDOW
    setting.deliver(LARGE[-1:] + MESSAGE)
    assert setting.direct.held == 0
    assert setting.direct.statistics().peak_held == WINDOW
    assert setting.received == LARGE + MESSAGE
    await asyncio.sleep(HOLD_SECONDS + 1)
    assert setting.overshoots == {}


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


@played()
async def test_a_permit_is_the_callers(setting: Setting) -> None:
    setting.deliver_all(LARGE[: WINDOW // 2])
    assert setting.direct.top_holders(9) == [("me", WINDOW)]


@played()
async def test_a_permit_that_was_waited_for_is_the_callers_too(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.deliver(LARGE[:100])
    await asyncio.sleep(0)
    taken.release()
    await asyncio.sleep(0)
    assert setting.direct.top_holders(9) == [("me", WINDOW)]


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


@played()
async def test_a_frame_that_its_broker_never_ends_gives_its_memory_back(setting: Setting) -> None:
    setting.deliver(LARGE[:100])
    await asyncio.sleep(HOLD_SECONDS - 0.1)
    assert setting.direct.held == WINDOW
    await asyncio.sleep(0.2)
    assert setting.direct.held == 0
    assert setting.overshoots == {WatchOvershoot.HELD_TOO_LONG: 1}
    setting.deliver_all(LARGE[100:])
    assert setting.received == LARGE


@played(room=10)
async def test_a_frame_that_its_client_never_takes_gives_its_memory_back(setting: Setting) -> None:
    setting.deliver(SMALL)
    await asyncio.sleep(HOLD_SECONDS + 0.1)
    assert setting.direct.held == 0
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
    # What was asked for before the second read is what is held; the second frame is still open.
    assert setting.direct.held == len(SMALL)
    setting.deliver_all(LARGE[1000:])
    assert setting.direct.held == 0


@played()
async def test_a_fin_waits_behind_the_bytes_that_wait(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.deliver(SMALL)
    setting.relay.broker.eof_received()
    assert setting.relay.finished_by(setting.relay.broker) is False
    await asyncio.sleep(0)
    taken.release()
    await asyncio.sleep(0)
    assert setting.received == SMALL
    assert setting.relay.finished_by(setting.relay.broker)


@played()
async def test_a_fin_inside_a_watch_frame_ends_its_permit(setting: Setting) -> None:
    setting.deliver(LARGE[:1000])
    setting.relay.broker.eof_received()
    assert setting.direct.held == 0
    assert setting.received == LARGE[:1000]


@played()
async def test_the_end_of_the_client_frees_the_place_in_the_queue_at_once(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.deliver(SMALL)
    await asyncio.sleep(0)
    assert setting.direct.queue_size == 1
    setting.relay.client.abort(DisconnectCause.CONNECTION_RESET)
    assert setting.direct.queue_size == 0
    assert setting.received == b""
    taken.release()


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
async def test_what_was_read_of_a_broker_that_is_gone_still_goes_out(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.deliver(MESSAGE + SMALL)
    await asyncio.sleep(0)
    setting.relay.broker.abort(DisconnectCause.CONNECTION_RESET)
    assert setting.received == MESSAGE + SMALL
    assert setting.direct.queue_size == 0
    assert setting.overshoots == {WatchOvershoot.BROKER_GONE: 1}
    taken.release()


@played()
async def test_bytes_that_are_no_frames_pass_as_they_are_and_are_counted_once(setting: Setting) -> None:
    garbage = MESSAGE + bytes(50)
    for _ in range(3):
        setting.deliver(garbage)
        setting.deliver(SMALL)
    assert setting.received == (garbage + SMALL) * 3
    assert setting.watch.unwalkable == 1
    assert setting.direct.statistics().granted == 0


@played(first=ping() + SMALL[:5], exhausted=True)
async def test_the_walk_begins_behind_the_handshake(setting: Setting) -> None:
    assert setting.received == ping() + SMALL[:5]
    setting.deliver(SMALL[5:])
    await asyncio.sleep(0)
    assert setting.direct.queue_size == 1
    assert setting.received == ping() + SMALL[:5]


@played(first=ping() + SMALL + MESSAGE, exhausted=True)
async def test_a_watch_frame_right_behind_the_handshake_waits_as_any_other(setting: Setting) -> None:
    assert setting.received == ping()
    assert setting.paused()
    await asyncio.sleep(PAUSE_SECONDS + 0.1)
    assert setting.received == ping() + SMALL + MESSAGE
    assert not setting.paused()


@played(max_pause_seconds=1000.0)
async def test_a_pause_longer_than_the_read_timeout_does_not_end_the_pair(setting: Setting) -> None:
    taken = setting.exhaust()
    setting.deliver(SMALL)
    for _ in range(10):
        await asyncio.sleep(20)
        setting.relay.tick(asyncio.get_running_loop().time())
    assert setting.ended == []
    taken.release()
    await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(20)
        setting.relay.tick(asyncio.get_running_loop().time())
    assert setting.ended == [DisconnectCause.READ_TIMEOUT]


@played()
async def test_a_crash_of_the_walk_ends_its_own_pair_only(setting: Setting) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("crash of this relay")

    setting.relay.broker._walker = crash  # type: ignore[attr-defined]
    setting.deliver(MESSAGE)
    assert setting.ended == [DisconnectCause.INTERNAL_ERROR]
    assert setting.limits.counters.internal_errors == {"relay": 1}
    setting.limits.counters.internal_errors.clear()


def test_a_raw_relay_is_the_parent_of_a_walked_one() -> None:
    assert issubclass(WatchedRelay, Relay)
