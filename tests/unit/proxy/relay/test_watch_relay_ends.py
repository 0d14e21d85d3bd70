"""What begins and ends a walked relay: the bytes behind its handshake, FINs and cuts, bytes that are no frames."""

import asyncio

from proxy.core.errors import DisconnectCause
from proxy.relay.counters import WatchOvershoot
from tests.support.proxies.walked_relay import LARGE, MESSAGE, PAUSE_SECONDS, SMALL, Setting, played
from tests.support.sockets.frames import ping


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

    setting.relay.broker._scanner = crash  # type: ignore[attr-defined]
    setting.deliver(MESSAGE)
    assert setting.ended == [DisconnectCause.INTERNAL_ERROR]
    assert setting.limits.counters.shared.internal_errors == {"relay": 1}
    setting.limits.counters.shared.internal_errors.clear()
