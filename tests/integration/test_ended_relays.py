"""What the kernel still has to send when a relay is over: it arrives if the peer takes it, and else does not stay."""

import asyncio
import os

import pytest

from proxy.net import ended_sockets, transport
from proxy.net.ended_sockets import EndedReset, EndedSockets
from tests.integration.test_direct_mode import Pair, Side, paired, sides
from tests.support.clients.async_client import AsyncClient
from tests.support.proxies.counted import counted, counted_by
from tests.support.proxies.relays import kernel_bytes_towards, unsent

MUCH = transport.LEFT_TO_THE_KERNEL_BYTES
QUICK_STALL_SECONDS = 0.2
# The kernel takes as much as it likes, as it does for clients in lookup mode.
KERNELS_CHOICE = {"relayUnsentBytes": 0}
IN_THE_KERNEL_BYTES = 1 << 19


def ended(pair: Pair) -> EndedSockets:
    return pair.stage.proxy.sockets.hangup.ended


def resets(pair: Pair) -> dict[str, int]:
    return {why: count for why, count in counted_by(pair.stage.proxy.counters, "ended_socket_resets").items() if count}


async def filled(pair: Pair, side: Side) -> bytes:
    """Have the kernel keep much that `side` has sent, for another side that does not read; give what was sent."""
    sender, reader, direction = pair.ends(side)
    relay, sent = pair.relay, os.urandom(IN_THE_KERNEL_BYTES)
    await sender.send(sent)
    await pair.stage.until(lambda: relay.snapshot().moved[direction] == len(sent), "all of it moved")
    await pair.stage.until(lambda: not unsent(relay, direction), "nothing of it in user space")
    assert kernel_bytes_towards(reader) > MUCH
    return sent


async def slowly(peer: AsyncClient, *, talking: bool = False) -> bytes:
    """Read a little at a time to the end."""
    loop, got = asyncio.get_running_loop(), bytearray()
    while piece := await loop.sock_recv(peer.sock, 64 * 1024):
        got += piece
        if talking:
            peer.send_now(b"an acknowledgement")
        await asyncio.sleep(0.002)
    return bytes(got)


@pytest.mark.threat("refilled-relays")
@sides
async def test_a_peer_that_takes_nothing_is_reset_soon_after_the_other_has_left(
    monkeypatch: pytest.MonkeyPatch, side: Side
) -> None:
    monkeypatch.setattr(ended_sockets, "STALL_SECONDS", QUICK_STALL_SECONDS)
    async with paired(**KERNELS_CHOICE) as pair:
        await filled(pair, side)
        sender, reader, _ = pair.ends(side)
        sender.reset()
        await pair.stage.until(lambda: resets(pair) == {EndedReset.STALLED: 1}, "a peer that was reset")
        assert kernel_bytes_towards(reader) == 0
        assert (len(ended(pair)), ended(pair).quota.used_bytes) == (0, 0)
        assert counted(pair.stage.proxy.counters, "ended_socket_bytes") == 0


@pytest.mark.parametrize("talking", [False, True], ids=["silent", "talking"])
async def test_a_client_that_still_takes_bytes_gets_all_of_them_and_a_fin(talking: bool) -> None:
    async with paired(**KERNELS_CHOICE) as pair:
        sent = await filled(pair, "broker")
        if talking:
            await pair.client.send(b"never read by anybody")
        pair.broker.reset()
        await pair.stage.until(lambda: not len(pair.stage.proxy.sessions), "a relay that is over")
        assert ended(pair).quota.used_bytes > MUCH
        assert counted(pair.stage.proxy.counters, "ended_socket_bytes") > MUCH
        assert await slowly(pair.client, talking=talking) == sent
        pair.client.close()
        await pair.stage.until(lambda: not len(ended(pair)), "no socket")
        assert resets(pair) == {}


@pytest.mark.threat("refilled-relays")
async def test_all_together_hold_no_more_than_the_bound() -> None:
    async with paired(**KERNELS_CHOICE) as pair:
        ended(pair).quota.most_bytes = MUCH
        await filled(pair, "client")
        pair.client.reset()
        await pair.stage.until(lambda: resets(pair) == {EndedReset.NO_ROOM: 1}, "a peer that was reset")
        # The transport of the loop closes its own descriptor of the socket a turn later.
        await pair.stage.until(lambda: kernel_bytes_towards(pair.broker) == 0, "nothing left in the kernel")
        assert len(ended(pair)) == 0


async def test_a_peer_that_leaves_is_forgotten() -> None:
    async with paired(**KERNELS_CHOICE) as pair:
        await filled(pair, "client")
        pair.client.reset()
        await pair.stage.until(lambda: len(ended(pair)) == 1, "a socket that is kept")
        pair.broker.reset()
        await pair.stage.until(lambda: not len(ended(pair)), "no socket")
        assert resets(pair) == {}


async def test_a_proxy_that_stops_leaves_what_is_kept_to_the_kernel() -> None:
    async with paired(**KERNELS_CHOICE) as pair:
        sent = await filled(pair, "broker")
        pair.broker.reset()
        await pair.stage.until(lambda: len(ended(pair)) == 1, "a socket that is kept")
        pair.stage.proxy.sockets.close()
        assert await slowly(pair.client) == sent
