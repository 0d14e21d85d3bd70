"""Half-closed and ending relays: what came before the end arrives as long as it is taken, and nobody waits for ever."""

import os
from collections.abc import Callable

import pytest

from proxy.core.errors import DisconnectCause
from proxy.net import ended_sockets, transport
from tests.integration.test_direct_mode import KIB, QUICK_STALL_SECONDS, Pair, Side, paired, sides
from tests.integration.test_relay_contract import read_on, turns
from tests.support.clients.async_client import AsyncClient
from tests.support.proxies.relays import CLOSE_WAIT, tcp_state_towards, unread_bytes_of, unsent
from tests.support.sockets.frames import watch_update

pytestmark = pytest.mark.usefixtures("tls_mode")
# Little stays in the kernel: less than what is looked after there.
LITTLE_IN_THE_KERNEL = {"relayUnsentBytes": 16 * 1024}
PART = watch_update(1, ["persistent://public/default/" + "n" * 60_000])[:-1]
# A clock that only the test's own looks let run.
HOUR = 3600.0
HOUR_MILLIS = 3_600_000


async def held(pair: Pair, side: Side) -> bytes:
    """Have the proxy hold bytes of `side` for a receiver that takes none, and no bytes that it has not read."""
    sender, reader, direction = pair.ends(side)
    sent = b""
    while True:
        # A thread that has passed this on has told what it holds: one that has just read may not have.
        await reader.send(b"x")
        assert await sender.receive(1) == b"x"
        if unsent(pair.relay, direction):
            return sent
        piece = os.urandom(16 * KIB)
        await sender.send(piece)
        sent += piece
        await pair.stage.until(lambda: not unread_bytes_of(sender), "the piece read")


def reset_by_sender(pair: Pair, sender: AsyncClient) -> None:
    sender.reset()


def closed_by_us(pair: Pair, sender: AsyncClient) -> None:
    pair.relay.close(DisconnectCause.CONNECTION_AGE)


ends = pytest.mark.parametrize("end", [reset_by_sender, closed_by_us])
End = Callable[[Pair, AsyncClient], None]


async def is_reset(pair: Pair, reader: AsyncClient) -> None:
    kept = pair.stage.proxy.sockets.hangup.ended
    await pair.stage.until(lambda: not len(pair.stage.proxy.sessions) and not len(kept), "nothing left of the pair")
    # A FIN would say that this was all.
    with pytest.raises(ConnectionResetError):
        await read_on(reader)


# --- relays that end ------------------------------------------------------------------------------


@sides
@ends
async def test_bytes_that_were_held_at_the_end_reach_a_receiver_that_comes_late(
    monkeypatch: pytest.MonkeyPatch, side: Side, end: End
) -> None:
    monkeypatch.setattr(transport, "LINGER_SECONDS", 0.0)
    async with paired(**LITTLE_IN_THE_KERNEL) as pair:
        sent = await held(pair, side)
        sender, reader, _ = pair.ends(side)
        end(pair, sender)
        await turns()
        assert await reader.rest() == sent
        await pair.stage.until(lambda: not len(pair.stage.proxy.sessions), "no session")


@sides
@ends
async def test_a_receiver_that_stands_still_is_reset_by_the_clock_of_ended_sockets(
    monkeypatch: pytest.MonkeyPatch, side: Side, end: End
) -> None:
    monkeypatch.setattr(ended_sockets, "STALL_SECONDS", QUICK_STALL_SECONDS)
    monkeypatch.setattr(transport, "LINGER_SECONDS", HOUR)
    async with paired(**LITTLE_IN_THE_KERNEL) as pair:
        await held(pair, side)
        sender, reader, _ = pair.ends(side)
        end(pair, sender)
        await is_reset(pair, reader)


@sides
async def test_a_receiver_that_takes_for_ever_is_reset_when_the_longest_time_is_over(
    monkeypatch: pytest.MonkeyPatch, side: Side
) -> None:
    monkeypatch.setattr(ended_sockets, "LONGEST_SECONDS", QUICK_STALL_SECONDS)
    monkeypatch.setattr(transport, "LINGER_SECONDS", HOUR)
    async with paired(**LITTLE_IN_THE_KERNEL) as pair:
        await held(pair, side)
        sender, reader, _ = pair.ends(side)
        sender.reset()
        await is_reset(pair, reader)


# --- relays that end because one side does: TLS cannot tell the other one of a half -----------------


@pytest.mark.receiver("tls")
async def test_what_was_held_at_the_end_of_its_sender_reaches_a_receiver_that_comes_late(side: Side) -> None:
    async with paired(**LITTLE_IN_THE_KERNEL) as pair:
        sent = await held(pair, side)
        sender, reader, _ = pair.ends(side)
        sender.fin()
        await turns()
        assert await reader.rest() == sent
        assert await sender.rest() == b""
        await pair.over(f"{side}_closed")


@pytest.mark.receiver("tls")
async def test_an_end_in_the_middle_of_a_frame_comes_behind_the_bytes_that_came(side: Side) -> None:
    async with paired() as pair:
        sender, reader, _ = pair.ends(side)
        await sender.send(PART)
        sender.fin()
        assert await reader.rest() == PART
        assert await sender.rest() == b""
        await pair.over(f"{side}_closed")
        await pair.stage.until(lambda: not pair.stage.direct.held, "no permit for a frame that nobody ends")


# --- relays of which one side has sent its FIN ----------------------------------------------------


async def with_a_fin(pair: Pair, side: Side) -> bytes:
    """Have a FIN come behind bytes that are held."""
    sent = await held(pair, side)
    sender, _, _ = pair.ends(side)
    sender.fin()
    await pair.stage.until(lambda: tcp_state_towards(sender) == CLOSE_WAIT, "the FIN at the proxy")
    await pair.stage.until(lambda: pair.relay.snapshot().half_open, "a relay that knows of the FIN")
    return sent


@pytest.mark.receiver("plain")
async def test_the_read_timeout_does_not_end_a_relay_whose_peer_takes_what_came_before_a_fin(side: Side) -> None:
    async with paired(brokerProxyReadTimeoutMs=HOUR_MILLIS) as pair:
        sent = await with_a_fin(pair, side)
        _, reader, direction = pair.ends(side)
        relay, now = pair.relay, pair.stage.proxy.loop.time()
        relay.tick(now)
        await pair.stage.until(lambda: relay.snapshot().untaken_bytes > unsent(relay, direction), "bytes in the kernel")
        relay.tick(now + 0.6 * HOUR)
        taken, before = b"", relay.snapshot().untaken_bytes
        while not taken or (relay.snapshot().untaken_bytes >= before and len(taken) < len(sent)):
            taken += await reader.receive(min(16 * 1024, len(sent) - len(taken)))
            await turns(2)
        await pair.stage.until(lambda: relay.snapshot().untaken_bytes < before, "bytes that were taken")
        relay.tick(now + 1.1 * HOUR)
        await turns()
        assert len(pair.stage.proxy.sessions) == 1
        assert taken + await reader.rest() == sent
        reader.close()
        await pair.over(f"{side}_closed")


@sides
async def test_the_read_timeout_ends_a_relay_whose_peer_takes_nothing_of_what_came_before_a_fin(side: Side) -> None:
    async with paired(brokerProxyReadTimeoutMs=HOUR_MILLIS) as pair:
        await with_a_fin(pair, side)
        relay, now = pair.relay, pair.stage.proxy.loop.time()
        relay.tick(now)
        await pair.stage.until(lambda: relay.snapshot().untaken_bytes, "bytes that nobody takes")
        for look in (0.6, 0.8, 1.0):
            relay.tick(now + look * HOUR + 1)
        await pair.over("read_timeout")


@sides
async def test_without_a_read_timeout_a_relay_ends_whose_peer_takes_nothing_of_what_came_before_a_fin(
    side: Side,
) -> None:
    async with paired(brokerProxyReadTimeoutMs=0) as pair:
        await with_a_fin(pair, side)
        await ends_after_the_longest_time(pair)


@pytest.mark.receiver("plain")
async def test_without_a_read_timeout_a_half_closed_relay_on_which_nothing_moves_ends(side: Side) -> None:
    async with paired(brokerProxyReadTimeoutMs=0) as pair:
        pair.ends(side)[0].fin()
        assert await pair.ends(side)[1].rest() == b""
        await ends_after_the_longest_time(pair)


async def ends_after_the_longest_time(pair: Pair) -> None:
    relay, now = pair.relay, pair.stage.proxy.loop.time()
    await pair.stage.until(lambda: relay.snapshot().half_open, "a relay that knows of the FIN")
    relay.tick(now)
    relay.tick(now + 0.9 * ended_sockets.LONGEST_SECONDS)
    await turns()
    assert len(pair.stage.proxy.sessions) == 1
    # A busy kernel may tell late of what had moved before: then the clock begins with the look at that.
    relay.tick(now + ended_sockets.LONGEST_SECONDS + 1)
    relay.tick(now + 2 * ended_sockets.LONGEST_SECONDS + 2)
    await pair.over("read_timeout")


@pytest.mark.receiver("plain")
async def test_a_fin_in_the_middle_of_a_frame_passes_behind_the_bytes_that_came(side: Side) -> None:
    async with paired() as pair:
        sender, reader, _ = pair.ends(side)
        await sender.send(PART)
        sender.fin()
        assert await reader.rest() == PART
        await pair.stage.until(lambda: not pair.stage.direct.held, "no permit for a frame that nobody ends")
        await reader.send(b"heard")
        assert await sender.receive(5) == b"heard"
        reader.fin()
        assert await sender.rest() == b""
        await pair.over(f"{side}_closed")
