"""The relay on the event loop keeps the contract of engines: reasons to pause, its read time-out, causes of its end."""

import asyncio
import errno

import pytest

from protocol.commands import PONG_FRAME
from proxy.core.errors import DisconnectCause
from proxy.relay.engine import Direction, PauseReason
from tests.support.proxies.walked_relay import LARGE, MESSAGE, SMALL, Setting, played

TO_BROKER, TO_CLIENT = Direction.TO_BROKER, Direction.TO_CLIENT


def reads(setting: Setting) -> tuple[bool, bool]:
    return setting.relay.client.reading, setting.relay.broker.reading


@played()
async def test_a_reason_stops_one_direction_and_no_other_reason_starts_it(setting: Setting) -> None:
    relay = setting.relay
    relay.pause(TO_CLIENT, PauseReason.POOL)
    relay.pause(TO_CLIENT, PauseReason.RATE)
    assert reads(setting) == (True, False)
    relay.resume(TO_CLIENT, PauseReason.POOL)
    relay.resume(TO_CLIENT, PauseReason.THRESHOLD)
    assert reads(setting) == (True, False)
    assert relay.snapshot().paused == (PauseReason(0), PauseReason.RATE)
    assert relay.snapshot().state == "paused: rate"
    relay.resume(TO_CLIENT, PauseReason.RATE)
    assert reads(setting) == (True, True)


@played(room=0)
async def test_the_end_of_a_pause_does_not_read_for_a_client_that_takes_nothing(setting: Setting) -> None:
    relay = setting.relay
    setting.deliver(MESSAGE)
    relay.pause(TO_CLIENT, PauseReason.THRESHOLD)
    relay.resume(TO_CLIENT, PauseReason.THRESHOLD)
    assert reads(setting) == (True, False)
    assert relay.snapshot().unsent == (0, len(MESSAGE))
    setting.client.take(len(MESSAGE))
    assert reads(setting) == (True, True)


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


@played(room=0)
async def test_a_client_that_takes_its_bytes_does_not_end_a_pause(setting: Setting) -> None:
    setting.deliver(MESSAGE)
    setting.relay.pause(TO_CLIENT, PauseReason.THRESHOLD)
    setting.client.take(len(MESSAGE))
    assert reads(setting) == (True, False)
    setting.relay.resume(TO_CLIENT, PauseReason.THRESHOLD)
    assert reads(setting) == (True, True)


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


@played()
async def test_one_read_may_pass_after_a_pause(setting: Setting) -> None:
    setting.relay.pause(TO_CLIENT, PauseReason.POOL)
    setting.deliver(MESSAGE)
    assert setting.received == MESSAGE


@played()
async def test_the_read_timeout_does_not_run_in_a_pause_and_begins_anew_behind_it(setting: Setting) -> None:
    relay, clock = setting.relay, asyncio.get_running_loop().time
    await asyncio.sleep(70)
    relay.pause(TO_BROKER, PauseReason.THRESHOLD)
    for _ in range(10):
        await asyncio.sleep(20)
        relay.tick(clock())
    relay.resume(TO_BROKER, PauseReason.THRESHOLD)
    await asyncio.sleep(74)
    relay.tick(clock())
    # A pause between two ticks counts, too.
    relay.pause(TO_BROKER, PauseReason.RATE)
    relay.resume(TO_BROKER, PauseReason.RATE)
    await asyncio.sleep(74)
    relay.tick(clock())
    assert setting.ended == []
    await asyncio.sleep(1)
    relay.tick(clock())
    assert setting.ended == [DisconnectCause.READ_TIMEOUT]


@played()
async def test_bytes_are_counted_once_however_often_somebody_looks(setting: Setting) -> None:
    setting.deliver_all(LARGE)
    for _ in range(3):
        assert setting.relay.snapshot().moved == (0, len(LARGE))
        setting.relay.tick(asyncio.get_running_loop().time())
    assert setting.limits.counters.relay_bytes_to_client == len(LARGE)


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


@pytest.mark.parametrize(
    ("number", "cause"),
    [(errno.ETIMEDOUT, DisconnectCause.WRITE_STALLED), (errno.ECONNRESET, DisconnectCause.CONNECTION_RESET)],
)
def test_so_did_one_that_is_given_up_while_its_bytes_are_not_read(
    number: int, cause: DisconnectCause, monkeypatch: pytest.MonkeyPatch
) -> None:
    @played()
    async def play(setting: Setting) -> None:
        setting.relay.pause(TO_BROKER, PauseReason.POOL)
        monkeypatch.setattr(type(setting.relay.client), "_socket_error", lambda _: number)
        setting.relay.client._hung_up(True)
        assert setting.ended == [cause]

    play()
