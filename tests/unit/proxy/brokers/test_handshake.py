"""The answer to CONNECT, from any listener that a client names: small, in turns, and with few questions before it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from protocol import commands
from protocol.command_type import CommandType
from protocol.commands import PONG_FRAME
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers.endpoint import FRAMES_PER_TURN, MOST_CHALLENGES
from proxy.brokers.handshake import MAX_ANSWER_BYTES, BrokerHandshake
from proxy.core.errors import ConnectionClosed, DisconnectCause, RequestFailed
from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import SMALL_READ_BYTES, SharedReadBuffer
from tests.support.auth.credentials import challenge
from tests.support.brokers.played import feed
from tests.support.brokers.raw_broker import CONNECTED
from tests.support.clients.list_clients import turns
from tests.support.sockets.endpoints import hangup_watcher
from tests.support.sockets.memory_transport import MemoryTransport

CHALLENGE = challenge()
RESPONSE = b"response"
# A PING whose message is left out: only PINGs as encoders write them are passed over by the hundred.
ODD_PING = (6).to_bytes(4, "big") + (2).to_bytes(4, "big") + bytes((8, CommandType.PING))
REFUSED = commands.error(commands.REQUEST_ID_NONE, ServerError.AuthorizationError, "no")


class Bench:
    """A handshake in memory whose broker is played by the test."""

    def __init__(self, budget: LoopBudget, hangup: HangupWatcher) -> None:
        loop = asyncio.get_running_loop()
        self.budget = budget
        self.handshake = BrokerHandshake(loop, SharedReadBuffer(), hangup, budget, b"")
        self.socket = MemoryTransport(loop)
        self.socket.connect(self.handshake)

    def arrives(self, data: bytes) -> None:
        feed(self.handshake, data)

    def converse(self) -> asyncio.Task[pb.CommandConnected]:
        async def respond() -> bytes:
            return RESPONSE

        return asyncio.get_running_loop().create_task(self.handshake.converse(respond))

    def count(self, answer: bytes) -> int:
        return self.socket.peer_bytes.count(answer)


@asynccontextmanager
async def bench(now: Callable[[], float] = lambda: 100.0) -> AsyncIterator[Bench]:
    budget = LoopBudget(asyncio.get_running_loop(), now)
    async with hangup_watcher() as hangup:
        on = Bench(budget, hangup)
        yield on
        on.handshake.abort(DisconnectCause.SHUTDOWN)
        await turns()
        assert (len(budget), len(hangup)) == (0, 0)


# --- questions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("challenges", [0, 1, MOST_CHALLENGES])
async def test_a_broker_may_ask_a_few_times_before_connected(challenges: int) -> None:
    async with bench() as on:
        on.arrives(CHALLENGE * challenges + CONNECTED + b"of the client")
        connected = await on.converse()
        assert connected.server_version == "raw"
        assert on.count(RESPONSE) == challenges
        assert on.handshake.hand_over()[1] == b"of the client"
        on.socket.abort()


@pytest.mark.threat("auth-challenge-flood")
async def test_a_listener_that_asks_without_end_gets_few_answers() -> None:
    async with bench() as on:
        on.arrives(CHALLENGE * (SMALL_READ_BYTES // len(CHALLENGE)))
        with pytest.raises(RequestFailed, match="goes on asking") as failed:
            await on.converse()
        assert failed.value.code == ServerError.AuthenticationError
        assert on.count(RESPONSE) == MOST_CHALLENGES


# --- turns ----------------------------------------------------------------------------------------


@pytest.mark.threat("auth-challenge-flood")
async def test_a_read_full_of_frames_is_handled_in_turns() -> None:
    async with bench() as on:
        frames = SMALL_READ_BYTES // len(ODD_PING)
        assert frames > 4 * FRAMES_PER_TURN
        on.arrives(ODD_PING * frames)
        assert on.count(PONG_FRAME) == FRAMES_PER_TURN
        assert on.socket.events[-1] == "pause reading"
        await turns(1)
        assert on.count(PONG_FRAME) == 2 * FRAMES_PER_TURN
        await turns(8)
        assert on.count(PONG_FRAME) == frames
        assert on.socket.events[-1] == "resume reading"
        on.arrives(CONNECTED)
        assert on.handshake.heard.done()


@pytest.mark.parametrize("cause", [DisconnectCause.BROKER_CLOSED, DisconnectCause.CONNECTION_RESET])
async def test_a_refusal_that_waits_for_its_turn_is_heard_although_the_broker_closes(cause: DisconnectCause) -> None:
    now = 100.0
    async with bench(lambda: now) as on:
        on.budget.spent()
        now += 2 * ITERATION_SECONDS
        on.arrives(REFUSED)
        assert not on.handshake.heard.done()
        on.handshake.abort(cause)
        error = on.handshake.heard.exception()
        assert isinstance(error, RequestFailed)
        assert error.code == ServerError.AuthorizationError
        await turns(2)


# --- size -----------------------------------------------------------------------------------------


def connected_of(size: int) -> bytes:
    """Build CONNECTED with `size` bytes in all."""
    text = pb.CommandConnected(server_version="v" * (size - 40), protocol_version=21)
    frame = commands.frame(pb.BaseCommand(type=pb.BaseCommand.CONNECTED, connected=text))
    text.server_version += "v" * (size - len(frame))
    return commands.frame(pb.BaseCommand(type=pb.BaseCommand.CONNECTED, connected=text))


@pytest.mark.threat("partial-connect-answers")
async def test_an_answer_of_the_largest_size_is_heard_and_a_larger_one_refused_by_its_first_bytes() -> None:
    async with bench() as on:
        on.arrives(connected_of(MAX_ANSWER_BYTES))
        assert on.handshake.heard.done()
    async with bench() as on:
        on.arrives(connected_of(MAX_ANSWER_BYTES + 1)[:8])
        assert on.handshake.cause is DisconnectCause.FRAME_TOO_LARGE
        assert isinstance(on.handshake.heard.exception(), ConnectionClosed)
