"""The hand-over of two sockets to the native engine: nothing is lost, sent twice, reset or left open on the way."""

import asyncio
import errno
import os

import pytest

from proxy.core.errors import DisconnectCause
from proxy.relay.engine import Direction, PauseReason
from proxy.relay.hand_over import LeavingEnd
from proxy.relay.native_api import PairEnd, PairEvent
from tests.support.proxies.counted import counted
from tests.support.proxies.native_pairs import Bench, played


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


@pytest.mark.threat("unread-pongs-before-connected")
@played
async def test_nothing_is_handed_over_before_the_transports_have_sent_everything(at: Bench) -> None:
    relay = at.relay(room=0)
    client, broker = at.transports[0]
    client.connect(LeavingEnd(client))
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
    client.connect(LeavingEnd(client))
    client.write(b"never taken")
    relay.start(client, broker, b"", b"")
    for _ in range(4):
        relay.tick(at.engine.loop.time())
        await asyncio.sleep(20)
    relay.tick(at.engine.loop.time())
    assert at.causes == [DisconnectCause.READ_TIMEOUT]


@pytest.mark.threat("no-descriptor-hand-over")
@pytest.mark.parametrize("closing", [False, True])
@pytest.mark.parametrize(
    "fault", [OSError(errno.EMFILE, "too many open files"), RuntimeError("the relay engine is stopped")]
)
def test_an_engine_without_room_ends_the_pair_counts_it_and_says_why(closing: bool, fault: Exception) -> None:
    @played
    async def play(at: Bench) -> None:
        at.pairs.fault = fault
        relay = at.relay()
        relay.start(*at.transports[0], b"CONNECTED", b"first")
        if closing:
            relay.close(DisconnectCause.CONNECTION_AGE)
        await turns()
        assert at.causes == [DisconnectCause.CONNECTION_AGE if closing else DisconnectCause.CONNECTION_RESET]
        assert counted(at.counters, "relay_native_refusals") == 1
        assert b"relay ended: the native engine has no room" in at.log.getvalue()

    play()
