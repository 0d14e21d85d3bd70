"""Clients that always have more to say take turns, and keep-alives cost next to nothing."""

import asyncio

import pytest

from protocol import commands
from protocol.commands import PING_FRAME, PONG_FRAME
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.core.errors import DisconnectCause
from proxy.net.transport import SMALL_READ_BYTES
from proxy.requests.client import FRAMES_PER_TURN
from proxy.requests.lookups import WAITED_TOO_LONG
from tests.support.clients.async_client import lookup_frame, topics_frame
from tests.support.clients.list_clients import turns
from tests.support.loops.loops import run_virtual
from tests.support.proxies.client_desk import LOOKUP_SECONDS, Desk, Visitor, desk
from tests.support.proxies.counted import counted_by

FLOW = commands.frame(pb.BaseCommand(type=pb.BaseCommand.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=1000)))

MALFORMED = bytes(20)


def served(visitor: Visitor) -> int:
    """Count the answers since the last call."""
    return len(visitor.answers())


# --- keep-alives ----------------------------------------------------------------------------------


async def test_a_ping_between_other_frames_is_answered_in_its_place() -> None:
    async with desk() as on:
        client = on.visitor()
        client.arrives(FLOW + PING_FRAME + FLOW + PONG_FRAME + PING_FRAME[:5])
        client.arrives(PING_FRAME[5:])
        kinds = [answer.type for answer in client.answers()]
        error, pong = pb.BaseCommand.ERROR, pb.BaseCommand.PONG
        assert kinds == [error, pong, error, pong]


async def test_answers_before_a_frame_that_ends_the_connection_are_sent() -> None:
    async with desk() as on:
        client = on.visitor()
        client.arrives(FLOW * 3 + MALFORMED)
        assert len(client.answers()) == 3
        assert on.registry.ends == [DisconnectCause.MALFORMED_FRAME]


@pytest.mark.threat("unread-pongs")
async def test_a_client_that_does_not_take_its_pongs_is_not_read() -> None:
    async with desk() as on:
        client, data = on.visitor(), PING_FRAME * 20_000
        client.socket.room = 10_000
        for _ in range(100):
            while client.session.reading and data:
                client.arrives(data[:SMALL_READ_BYTES])
                data = data[SMALL_READ_BYTES:]
            await turns(1)
        assert len(data) > 200_000
        assert client.session.holds == ("output",)
        assert client.socket.get_write_buffer_size() + client.session.output.unsent_bytes < 32_768
        client.socket.take(1 << 20)
        await turns(1)
        assert client.session.reading


# --- turns ----------------------------------------------------------------------------------------


async def test_a_client_is_served_its_share_and_goes_on_behind_the_others() -> None:
    async with desk() as on:
        flooders = [on.visitor() for _ in range(2)]
        for flooder in flooders:
            flooder.arrives(FLOW * 3 * FRAMES_PER_TURN)
        # While one client waits, the next has half of what it would have alone.
        half = FRAMES_PER_TURN // 2
        assert [served(flooder) for flooder in flooders] == [FRAMES_PER_TURN, half]
        assert not any(flooder.session.reading for flooder in flooders)
        quick = on.visitor()
        quick.arrives(FLOW)
        assert served(quick) == 1
        await turns(1)
        assert [served(flooder) for flooder in flooders] == [half] * 2
        while len(on.loop_budget):
            await turns(1)
        assert [served(flooder) for flooder in flooders] == [3 * half, 4 * half]
        assert all(flooder.session.reading for flooder in flooders)


# --- the clock of requests that wait in line ------------------------------------------------------


async def put_in_line(on: Desk, visitor: Visitor, data: bytes) -> None:
    """Let requests wait in line, and keep the client from being served when its turn comes."""
    on.work_long_enough()
    visitor.arrives(data)
    visitor.session.output_full()
    await turns(2)


@pytest.mark.threat("lookups-wait-for-ever")
def test_requests_whose_time_is_over_before_their_turn_are_refused_and_the_next_is_served() -> None:
    async def play() -> None:
        async with desk() as on:
            client = on.visitor()
            await put_in_line(on, client, lookup_frame(1, "t") + lookup_frame(2, "t") + topics_frame(3, "t/n"))
            await asyncio.sleep(LOOKUP_SECONDS)
            client.session.output_settled()
            await turns(2)
            answers = client.answers()
            assert [answer.lookupTopicResponse.error for answer in answers[:2]] == [ServerError.TooManyRequests] * 2
            assert [answer.lookupTopicResponse.message for answer in answers[:2]] == [WAITED_TOO_LONG] * 2
            assert counted_by(on.counters, "refused_requests") == {"too_late": 2}
            assert on.lists.arrivals == [on.services.loop.time() - LOOKUP_SECONDS]
            assert client.session.outstanding == 0
            # What comes now has a clock of its own.
            client.arrives(topics_frame(4, "t/n"))
            await turns(2)
            assert on.lists.arrivals[1:] == [on.services.loop.time()]

    run_virtual(play())


# --- commands that nobody answers -----------------------------------------------------------------


@pytest.mark.parametrize("frame", [PING_FRAME, FLOW])
async def test_commands_that_are_answered_have_no_rate(frame: bytes) -> None:
    async with desk(unanswered_per_second=100) as on:
        client = on.visitor()
        for _ in range(20):
            client.arrives(frame * 20)
            await turns(2)
        assert client.session.holds == ()


# --- the memory for commands ----------------------------------------------------------------------
