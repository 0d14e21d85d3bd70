"""The hand-over of two sockets to the native engine: nothing is lost, sent twice, reset or left open on the way."""

import asyncio
import errno
import os
import socket

import pytest

from proxy.core.errors import DisconnectCause
from proxy.relay.engine import Direction, PauseReason
from proxy.relay.hand_over import LeavingEnd
from proxy.relay.native_api import PairEnd, PairEvent
from tests.support.loops.loops import run_virtual
from tests.support.proxies.native_pairs import Bench, bench, played


async def turns(count: int = 6) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@played
async def test_the_engine_gets_duplicates_when_both_transports_are_gone(at: Bench) -> None:
    relay = at.relay()
    client, broker = at.transports[0]
    inodes = [os.fstat(transport.get_extra_info("socket").fileno()).st_ino for transport in (client, broker)]
    relay.start(client, broker, b"for the client", b"for the broker")
    # Both close in one step, and neither by an abort, which could set SO_LINGER on the shared socket.
    assert [transport.events[-1] for transport in (client, broker)] == ["close", "close"]
    assert not at.pairs.given
    await turns()
    (given,) = at.pairs.given.values()
    assert [os.fstat(fd).st_ino for fd in given.fds] == inodes
    assert not any(os.get_inheritable(fd) or os.get_blocking(fd) for fd in given.fds)
    assert (given.to_client, given.to_broker) == (b"for the client", b"for the broker")
    assert [transport.events.count("abort") for transport in (client, broker)] == [0, 0]


@played
async def test_what_a_transport_still_delivers_comes_behind_the_handshake_and_before_the_engine(at: Bench) -> None:
    relay = at.relay()
    client, broker = at.transports[0]
    relay.start(client, broker, b"connected ", b"first ")
    for transport, data in ((client, b"from the client"), (broker, b"from the broker")):
        end = transport.get_protocol()
        assert isinstance(end, LeavingEnd)
        end.get_buffer(-1)[: len(data)] = data
        end.buffer_updated(len(data))
        assert end.eof_received()
    await turns()
    (given,) = at.pairs.given.values()
    assert (given.to_client, given.to_broker) == (b"connected from the broker", b"first from the client")


@played
async def test_nothing_is_handed_over_before_the_transports_have_sent_everything(at: Bench) -> None:
    relay = at.relay(room=0)
    client, broker = at.transports[0]
    client.connect(LeavingEnd())
    client.write(b"a PONG of the handshake")
    relay.start(client, broker, b"", b"")
    await turns()
    assert not at.pairs.given
    assert "close" not in client.events + broker.events
    client.take(100)
    await turns()
    assert at.pairs.given
    assert client.peer_bytes == b"a PONG of the handshake"


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(
    ("number", "cause"),
    [(errno.ECONNRESET, DisconnectCause.CONNECTION_RESET), (errno.ETIMEDOUT, DisconnectCause.WRITE_STALLED)],
)
def test_an_error_that_a_transport_has_taken_from_its_socket_ends_the_relay(
    side: int, number: int, cause: DisconnectCause
) -> None:
    @played
    async def play(at: Bench) -> None:
        relay = at.relay(room=0)
        both = at.transports[0]
        relay.start(*both, b"last words", b"")
        both[side].get_protocol().connection_lost(OSError(number, "from the kernel"))
        await turns()
        # What was there for the other side is sent, by the engine.
        assert at.pairs.given[1].to_client == b"last words"
        assert at.pairs.asked == [("close", 1)]
        await at.told(PairEvent.ENDED, relay, PairEnd.OURS)
        assert at.causes == [cause]

    play()


@played
async def test_a_close_during_the_hand_over_is_done_behind_it(at: Bench) -> None:
    relay = at.relay()
    relay.start(*at.transports[0], b"CONNECTED", b"")
    relay.close(DisconnectCause.CREDENTIALS_EXPIRED)
    relay.close(DisconnectCause.CONNECTION_AGE)
    assert at.causes == []
    await turns()
    assert at.pairs.asked == [("close", 1)]
    await at.told(PairEvent.ENDED, relay, PairEnd.OURS)
    assert at.causes == [DisconnectCause.CREDENTIALS_EXPIRED]


@played
async def test_an_abort_during_the_hand_over_ends_the_relay_at_once(at: Bench) -> None:
    relay = at.relay()
    relay.start(*at.transports[0], b"CONNECTED", b"")
    relay.abort(DisconnectCause.SHUTDOWN)
    assert at.causes == [DisconnectCause.SHUTDOWN]
    await turns()
    assert not at.pairs.given
    relay.abort(DisconnectCause.SHUTDOWN)
    assert len(at.ended) == 1


@played
async def test_reasons_to_pause_that_came_during_the_hand_over_hold_behind_it(at: Bench) -> None:
    relay = at.relay()
    relay.start(*at.transports[0], b"", b"")
    relay.pause(Direction.TO_BROKER, PauseReason.POOL)
    relay.pause(Direction.TO_BROKER, PauseReason.RATE)
    relay.resume(Direction.TO_BROKER, PauseReason.POOL)
    await turns()
    # From the first byte on: a thread would read until it heard of a pause that follows.
    assert at.pairs.given[1].paused == (PauseReason.RATE, PauseReason(0))
    assert at.pairs.asked == []


@played
async def test_a_hand_over_that_stands_still_ends_by_the_read_timeout(at: Bench) -> None:
    relay = at.relay(room=0)
    client, broker = at.transports[0]
    client.connect(LeavingEnd())
    client.write(b"never taken")
    relay.start(client, broker, b"", b"")
    for _ in range(4):
        relay.tick(at.engine.loop.time())
        await asyncio.sleep(20)
    relay.tick(at.engine.loop.time())
    assert at.causes == [DisconnectCause.READ_TIMEOUT]


@pytest.mark.threat("no-descriptor-hand-over")
@pytest.mark.parametrize(
    ("closing", "fault"),
    [(False, OSError(errno.EMFILE, "too many open files")), (True, RuntimeError("the relay engine is stopped"))],
)
def test_an_engine_without_room_gives_the_pair_to_the_event_loop(closing: bool, fault: Exception) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        (own_client, client_sock), (own_broker, broker_sock) = socket.socketpair(), socket.socketpair()
        transports: list[asyncio.Transport] = []
        for sock in (client_sock, broker_sock):
            sock.setblocking(False)
            transport, _ = await loop.connect_accepted_socket(LeavingEnd, sock)
            transport.pause_reading()
            transports.append(transport)
        async with bench() as at:
            at.pairs.fault = fault
            client, broker = transports
            relay = at.engine.join(client, broker, at.order())
            relay.pause(Direction.TO_CLIENT, PauseReason.RATE)
            relay.start(client, broker, b"CONNECTED ", b"first ")
            own_client.sendall(b"and more")
            await asyncio.sleep(0.1)
            assert own_client.recv(100) == b"CONNECTED "
            assert own_broker.recv(100) == b"first and more"
            assert relay.snapshot().paused[Direction.TO_CLIENT] == PauseReason.RATE
            assert at.counters.relay.native_refusals == 1
            if closing:
                relay.close(DisconnectCause.CONNECTION_AGE)
            else:
                relay.resume(Direction.TO_CLIENT, PauseReason.RATE)
                own_broker.sendall(b"to the client")
                await asyncio.sleep(0.1)
                assert own_client.recv(100) == b"to the client"
                relay.tick(loop.time())
                assert relay.snapshot().moved == (len(b"and more"), len(b"to the client"))
                own_client.close()
                own_broker.close()
            await asyncio.sleep(1)
            expected = DisconnectCause.CONNECTION_AGE if closing else DisconnectCause.CLIENT_CLOSED
            assert [(each, cause) for each, cause in at.ended if each is relay] == [(relay, expected)]
        own_client.close()
        own_broker.close()

    before = os.listdir("/proc/self/fd")
    run_virtual(main())
    assert len(os.listdir("/proc/self/fd")) == len(before)
