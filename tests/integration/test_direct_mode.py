"""The relay between a client and the broker it names: every byte, each half-close, and nobody faster than the other."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb
from proxy.net import ended_sockets
from proxy.relay.engine import Direction, Relay
from tests.support.brokers.raw_broker import CONNECTED, RawBroker, handshake, raw_broker
from tests.support.clients.async_client import AsyncClient, Closed, connect_frame
from tests.support.patience import patient_millis
from tests.support.proxies.counted import counted, counted_by
from tests.support.proxies.proxy_under_test import MIB, TOPICS, Stage, namespace, staged
from tests.support.proxies.relays import (
    CLOSE_WAIT,
    CLOSED,
    TO_BROKER,
    TO_CLIENT,
    reads,
    tcp_state_towards,
    unread_bytes_of,
    unsent,
)

KIB = 1024
# A window below the segments of loopback would make every byte wait for timers of the kernel.
SMALL_RCVBUF = 128 * KIB
RELAY_BUFFER_BYTES = 256 * KIB
# What the kernel keeps between two sockets of a machine; a proxy that does not hold back keeps more in a moment.
KERNEL_BYTES = 48 * MIB
QUICK_STALL_SECONDS = 0.2
# Turns of 2 ms without a byte moving, after the relay has stopped reading.
_STILL = 50
Side = Literal["client", "broker"]

pytestmark = pytest.mark.usefixtures("tls_mode")
sides = pytest.mark.parametrize("side", ["client", "broker"])


@dataclass
class Pair:
    """A client and a broker with the proxy in between."""

    stage: Stage
    client: AsyncClient
    broker: AsyncClient

    @property
    def relay(self) -> Relay:
        (relay,) = self.stage.proxy.sessions.all_relays()
        return relay

    def ends(self, side: Side) -> tuple[AsyncClient, AsyncClient, Direction]:
        """Give `side`, the other one, and the direction of what `side` sends."""
        if side == "client":
            return self.client, self.broker, TO_BROKER
        return self.broker, self.client, TO_CLIENT

    async def over(self, cause: str) -> None:
        await self.stage.until(lambda: not len(self.stage.proxy.sessions), "no session")
        assert self.stage.caused(cause) == 1, counted_by(self.stage.proxy.counters, "disconnects")


async def stay(peer: AsyncClient) -> None:
    await asyncio.Event().wait()


async def greet(peer: AsyncClient) -> None:
    await handshake(peer)
    await stay(peer)


@asynccontextmanager
async def paired(**keys: Any) -> AsyncIterator[Pair]:
    """Join a client to a broker; both have small receive buffers."""
    # The broker ends first: the stage's own check wants no socket of it left.
    async with staged(relayBufferBytes=RELAY_BUFFER_BYTES, **keys) as stage, raw_broker(greet) as broker:
        yield await joined(stage, broker)


async def joined(stage: Stage, broker: RawBroker) -> Pair:
    client = await stage.client(SMALL_RCVBUF)
    await client.connect(target=f"127.0.0.1:{broker.port}")
    peer = broker.peers[-1]
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_RCVBUF)
    return Pair(stage, client, peer)


async def pour_until_still(pair: Pair, side: Side) -> bytes:
    """Let `side` send until not a byte is taken from it any more, and give what was taken."""
    sender, _, sent_to = pair.ends(side)
    piece, taken, still = os.urandom(64 * KIB), bytearray(), 0
    while still < _STILL:
        count = sender.send_now(piece)
        taken += piece[:count]
        still = 0 if count or reads(pair.relay, sent_to) else still + 1
        assert len(taken) < KERNEL_BYTES, f"{len(taken)} bytes taken from one that sends to nobody"
        await asyncio.sleep(0.002 if not count else 0)
    return bytes(taken)


async def becomes(so: Callable[[], bool]) -> bool:
    """Tell whether something is so within a moment: kernels make room for a receiver that takes nothing, too."""
    for _ in range(30):
        await asyncio.sleep(0.001)
        if so():
            return True
    return False


async def stop_the_relay(pair: Pair, side: Side) -> bytes:
    """Let `side` send until the proxy reads no more, with room left in the kernel for what follows (as a FIN)."""
    sender, _, sent_to = pair.ends(side)
    sent = bytearray()
    while reads(pair.relay, sent_to) or await becomes(lambda: reads(pair.relay, sent_to)):
        assert len(sent) < KERNEL_BYTES
        piece = os.urandom(16 * KIB)
        await sender.send(piece)
        sent += piece
        # An engine that gets no processor reads later: more pieces would fill the window that a FIN needs.
        await pair.stage.until(lambda: not reads(pair.relay, sent_to) or not unread_bytes_of(sender), "the piece read")
    return bytes(sent)


# --- bytes ----------------------------------------------------------------------------------------


async def test_bytes_pass_unchanged_both_ways_at_once() -> None:
    up, down = os.urandom(3 * MIB), os.urandom(4 * MIB)
    async with paired() as pair:
        client, broker = pair.client, pair.broker
        received = asyncio.gather(broker.receive(len(up)), client.receive(len(down)))
        await asyncio.gather(client.send(up), broker.send(down))
        assert tuple(await received) == (up, down)
        client.close()
        assert await broker.rest() == b""
        broker.close()
        await pair.over("client_closed")
        counters = pair.stage.proxy.counters
        assert counted_by(counters, "relay_bytes") == {"to_broker": len(up), "to_client": len(down)}


@pytest.mark.parametrize("size", [1, 3 * KIB, 200 * KIB])
async def test_bytes_sent_together_with_connect_reach_the_broker_behind_it(size: int) -> None:
    behind = os.urandom(size)
    async with staged() as stage, raw_broker(greet) as broker:
        client = await stage.client()
        await client.send(connect_frame(f"127.0.0.1:{broker.port}") + behind)
        assert (await client.command()).type == pb.BaseCommand.CONNECTED
        assert await broker.peers[0].receive(size) == behind
        await client.send(b"and more")
        assert await broker.peers[0].receive(8) == b"and more"


@pytest.mark.parametrize("size", [1, 200 * KIB])
async def test_bytes_that_a_broker_sends_together_with_connected_reach_the_client_behind_it(size: int) -> None:
    behind = os.urandom(size)

    async def hasty(peer: AsyncClient) -> None:
        await peer.command()
        await peer.send(CONNECTED + behind)
        await stay(peer)

    async with staged() as stage, raw_broker(hasty) as broker:
        client = await stage.client(SMALL_RCVBUF)
        await client.connect(target=f"127.0.0.1:{broker.port}")
        assert await client.receive(size) == behind


async def test_the_broker_learns_of_the_proxy_and_not_of_the_address_the_client_named() -> None:
    seen: list[pb.CommandConnect] = []

    async def note(peer: AsyncClient) -> None:
        seen.append(await handshake(peer))
        await stay(peer)

    async with staged() as stage, raw_broker(note) as broker:
        await (await stage.client()).connect(target=f"127.0.0.1:{broker.port}", version=17)
        assert seen[0].HasField("proxy_version")
        assert not seen[0].HasField("proxy_to_broker_url")
        assert seen[0].protocol_version == 17


async def test_an_empty_target_is_the_configured_broker_whatever_targets_are_allowed() -> None:
    async with staged(brokerProxyAllowedTargetPorts="1") as stage:
        client = await stage.client()
        await client.connect(target="")
        assert len((await client.topics(namespace(0))).topics) == TOPICS
        # It is a relay: the broker sees the client's own CONNECT, and no request counts as one of the proxy's.
        assert stage.broker.record.received[CommandType.CONNECT] == 1
        assert counted(stage.proxy.counters, "get_topics_of_namespace_requests") == 0
        assert stage.proxy.broker_side.pool.states()["paused"] == stage.outstanding == 0


# --- half-close -----------------------------------------------------------------------------------


@pytest.mark.receiver("plain")
async def test_a_half_close_is_passed_on_and_the_other_direction_goes_on(side: Side) -> None:
    last, answer = os.urandom(MIB), os.urandom(2 * MIB)
    async with paired() as pair:
        leaver, other, _ = pair.ends(side)
        received = asyncio.gather(other.rest(), leaver.receive(len(answer)))
        await leaver.send(last)
        leaver.fin()
        await pair.stage.until(lambda: tcp_state_towards(leaver) == CLOSE_WAIT, "the FIN at the proxy")
        await other.send(answer)
        assert tuple(await received) == (last, answer)
        assert len(pair.stage.proxy.sessions) == 1
        other.fin()
        assert await leaver.rest() == b""
        # Who left first is why it ended.
        await pair.over(f"{side}_closed")


@sides
async def test_a_fin_while_the_proxy_does_not_read_loses_no_byte(side: Side) -> None:
    async with paired(relayUnsentBytes=0) as pair:
        sender, reader, _ = pair.ends(side)
        sent = await stop_the_relay(pair, side)
        sender.fin()
        await pair.stage.until(lambda: tcp_state_towards(sender) == CLOSE_WAIT, "the FIN at the proxy")
        assert await reader.rest() == sent
        reader.close()
        await pair.over(f"{side}_closed")


@pytest.mark.receiver("plain")
async def test_fins_of_both_sides_while_the_proxy_does_not_read_lose_no_byte(side: Side) -> None:
    async with paired(relayUnsentBytes=0) as pair:
        reader, sender, _ = pair.ends(side)
        reader.fin()
        assert await sender.rest() == b""
        sent = await stop_the_relay(pair, "client" if side == "broker" else "broker")
        sender.fin()
        await pair.stage.until(lambda: tcp_state_towards(sender) == CLOSED, "the second FIN at the proxy")
        assert await reader.rest() == sent
        reader.close()
        await pair.over(f"{side}_closed")


@pytest.mark.receiver("tls")
async def test_the_end_of_one_side_ends_the_relay_whose_other_side_cannot_be_told(side: Side) -> None:
    last = os.urandom(MIB)
    async with paired() as pair:
        leaver, other, _ = pair.ends(side)
        received, _ = await asyncio.gather(other.receive(len(last)), leaver.send(last))
        assert received == last
        leaver.fin()
        with pytest.raises(Closed, match="close_notify"):
            await other.receive(1)
        assert await leaver.rest() == b""
        await pair.over(f"{side}_closed")


# --- backpressure ---------------------------------------------------------------------------------


@sides
async def test_one_that_does_not_read_stops_the_other_and_costs_one_buffer(side: Side) -> None:
    async with paired() as pair:
        _, reader, sent_to = pair.ends(side)
        sent = await pour_until_still(pair, side)
        assert not reads(pair.relay, sent_to)
        assert 0 < unsent(pair.relay, sent_to) <= RELAY_BUFFER_BYTES
        # The other direction has its own course.
        await reader.send(b"still here")
        assert await pair.ends(side)[0].receive(10) == b"still here"
        assert await reader.receive(len(sent)) == sent
        await pair.stage.until(lambda: reads(pair.relay, sent_to), "the flow going on")


# --- the end --------------------------------------------------------------------------------------


@sides
@pytest.mark.parametrize(("cut", "cause"), [("close", "{}_closed"), ("reset", "connection_reset")])
async def test_when_one_side_is_cut_the_other_is_closed(side: Side, cut: str, cause: str) -> None:
    async with paired() as pair:
        leaver, other, _ = pair.ends(side)
        await leaver.send(b"last words")
        assert await other.receive(10) == b"last words"
        getattr(leaver, cut)()
        assert await other.rest() == b""
        other.close()
        await pair.over(cause.format(side))


@sides
async def test_a_reset_while_the_proxy_does_not_read_ends_the_pair_at_once(
    monkeypatch: pytest.MonkeyPatch, side: Side
) -> None:
    monkeypatch.setattr(ended_sockets, "STALL_SECONDS", QUICK_STALL_SECONDS)
    async with paired() as pair:
        sender, reader, _ = pair.ends(side)
        sent = await pour_until_still(pair, side)
        sender.reset()
        await pair.over("connection_reset")
        received = await reader.rest()
        assert sent.startswith(received)
        assert len(pair.stage.proxy.sockets.hangup) == 0


@sides
async def test_a_fin_and_then_a_reset_while_the_proxy_does_not_read_end_the_pair(
    monkeypatch: pytest.MonkeyPatch, side: Side
) -> None:
    monkeypatch.setattr(ended_sockets, "STALL_SECONDS", QUICK_STALL_SECONDS)
    async with paired() as pair:
        sender, reader, _ = pair.ends(side)
        sent = await stop_the_relay(pair, side)
        sender.fin()
        await pair.stage.until(lambda: tcp_state_towards(sender) == CLOSE_WAIT, "the FIN at the proxy")
        for _ in range(10):
            await asyncio.sleep(0)
        # There may be bytes left to pass on.
        assert len(pair.stage.proxy.sessions) == 1
        assert len(pair.stage.proxy.sockets.hangup) == 0
        sender.reset()
        await pair.over("connection_reset")
        assert sent.startswith(await reader.rest())


@sides
async def test_the_reader_of_a_standing_relay_that_is_cut_ends_the_sender(side: Side) -> None:
    async with paired() as pair:
        sender, reader, _ = pair.ends(side)
        await pour_until_still(pair, side)
        reader.reset()
        await pair.over("connection_reset")
        assert await sender.rest() == b""


async def test_a_silent_pair_ends_after_the_read_timeout_and_one_that_moves_lives() -> None:
    async with (
        staged(brokerProxyReadTimeoutMs=patient_millis(1500), keepAliveIntervalSeconds=0) as stage,
        raw_broker(greet) as broker,
    ):
        silent, moving = [await joined(stage, broker) for _ in range(2)]
        leaving = asyncio.gather(silent.client.rest(), silent.broker.rest())
        while not leaving.done():
            # Bytes of one side are enough.
            await moving.broker.send(b"x")
            assert await moving.client.receive(1) == b"x"
            await asyncio.sleep(0.005)
        assert tuple(await leaving) == (b"", b"")
        # A thread closes both sockets before it tells of the end.
        await stage.until(lambda: stage.caused("read_timeout") == 1, "the end of the silent relay")
        assert len(stage.proxy.sessions) == 1


async def test_relayed_bytes_are_nobodys_business() -> None:
    async with paired() as pair:
        # A length of 2 GiB, and what would be a command: the proxy has no opinion.
        await pair.client.send(b"\x7f\xff\xff\xff\x00\x00\x00\x02\x08\x02")
        assert await pair.broker.receive(10) == b"\x7f\xff\xff\xff\x00\x00\x00\x02\x08\x02"
        pair.broker.reset()
        with pytest.raises(Closed):
            await pair.client.receive(1)
