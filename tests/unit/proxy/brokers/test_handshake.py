"""The answer to CONNECT, from any listener that a client names: small, in turns, and with few questions before it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from protocol import commands
from protocol.command_type import CommandType
from protocol.commands import PING_FRAME, PONG_FRAME
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.app.memory.budget import UNFINISHED_BYTES
from proxy.brokers.endpoint import FRAMES_PER_TURN, MOST_CHALLENGES
from proxy.brokers.handshake import MAX_ANSWER_BYTES, BrokerHandshake
from proxy.core.errors import ConnectionClosed, DisconnectCause, RequestFailed
from proxy.core.loop_budget import ITERATION_SECONDS, TASK_SECONDS, LoopBudget
from proxy.net.transport import SMALL_READ_BYTES, SharedReadBuffer
from tests.support.auth.credentials import challenge
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

    def __init__(self, handshake: BrokerHandshake, socket: MemoryTransport, budget: LoopBudget) -> None:
        self.handshake = handshake
        self.socket = socket
        self.budget = budget

    def arrives(self, data: bytes) -> None:
        """Let `data` be read, as much at a time as there is room for."""
        while data and self.handshake.cause is None:
            place = self.handshake.get_buffer(-1)
            count = min(len(place), len(data))
            place[:count] = data[:count]
            self.handshake.buffer_updated(count)
            data = data[count:]

    def converse(self) -> asyncio.Task[pb.CommandConnected]:
        return asyncio.get_running_loop().create_task(self.handshake.converse(respond))

    def count(self, answer: bytes) -> int:
        return self.socket.peer_bytes.count(answer)


async def respond() -> bytes:
    return RESPONSE


@asynccontextmanager
async def bench(now: Callable[[], float] = lambda: 100.0) -> AsyncIterator[Bench]:
    loop = asyncio.get_running_loop()
    budget = LoopBudget(loop, now)
    async with hangup_watcher() as hangup:
        handshake = BrokerHandshake(loop, SharedReadBuffer(), hangup, budget, b"")
        socket = MemoryTransport(loop)
        socket.connect(handshake)
        yield Bench(handshake, socket, budget)
        handshake.abort(DisconnectCause.SHUTDOWN)
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


async def test_each_question_waits_for_a_turn_although_all_came_in_one_read() -> None:
    async with bench() as on:
        on.arrives(CHALLENGE * MOST_CHALLENGES + CONNECTED)
        talk = on.converse()
        for asked in range(1, MOST_CHALLENGES + 1):
            # A turn of the loop budget hears the next question; the task goes on after it.
            await turns(1)
            assert on.count(RESPONSE) == asked
            await turns(1)
        await talk


@pytest.mark.threat("auth-challenge-flood")
async def test_questions_of_a_crowd_are_answered_a_few_in_an_iteration() -> None:
    loop = asyncio.get_running_loop()
    crowd = 200
    async with hangup_watcher() as hangup:
        budget, shared = LoopBudget(loop, lambda: 100.0), SharedReadBuffer()
        talks, sockets, handshakes = [], [], []
        for _ in range(crowd):
            handshake, socket = BrokerHandshake(loop, shared, hangup, budget, b""), MemoryTransport(loop)
            socket.connect(handshake)
            talks.append(Bench(handshake, socket, budget).converse())
            sockets.append(socket)
            handshakes.append(handshake)
        await turns(2)
        for handshake, socket in zip(handshakes, sockets, strict=True):
            Bench(handshake, socket, budget).arrives(CHALLENGE * MOST_CHALLENGES + CONNECTED)
        most = before = 0
        while not all(talk.done() for talk in talks):
            await turns(1)
            answered = sum(socket.peer_bytes.count(RESPONSE) for socket in sockets)
            most, before = max(most, answered - before), answered
        assert before == crowd * MOST_CHALLENGES
        assert most <= ITERATION_SECONDS / TASK_SECONDS + 2
        for handshake in handshakes:
            handshake.abort(DisconnectCause.SHUTDOWN)
        await turns()


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


async def test_what_comes_when_the_time_is_spent_waits_for_a_turn() -> None:
    now = 100.0
    async with bench(lambda: now) as on:
        for byte in ODD_PING + CONNECTED:
            # Others have used this iteration up.
            on.budget.spent()
            now += 2 * ITERATION_SECONDS
            on.arrives(bytes((byte,)))
            assert not on.socket.is_reading()
            assert not on.handshake.heard.done()
            await turns(2)
        assert on.handshake.heard.done()
        assert on.count(PONG_FRAME) == 1


async def test_hundreds_of_pings_are_answered_by_one_pong() -> None:
    async with bench() as on:
        on.arrives(PING_FRAME * 300 + CONNECTED)
        assert bytes(on.socket.peer_bytes) == PONG_FRAME
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


async def test_a_broker_that_closes_while_half_a_refusal_waits_has_closed() -> None:
    now = 100.0
    async with bench(lambda: now) as on:
        on.budget.spent()
        now += 2 * ITERATION_SECONDS
        on.arrives(REFUSED[:-1])
        on.handshake.abort(DisconnectCause.BROKER_CLOSED)
        assert isinstance(on.handshake.heard.exception(), ConnectionClosed)
        await turns(2)


# --- size -----------------------------------------------------------------------------------------


def connected_of(size: int) -> bytes:
    """Build CONNECTED with `size` bytes in all."""
    short = pb.CommandConnected(server_version="v" * (size // 2), protocol_version=21)
    frame = commands.frame(pb.BaseCommand(type=pb.BaseCommand.CONNECTED, connected=short))
    short.server_version += "v" * (size - len(frame))
    return commands.frame(pb.BaseCommand(type=pb.BaseCommand.CONNECTED, connected=short))


def test_an_answer_and_a_read_behind_it_are_what_a_connection_may_hold_without_a_permit() -> None:
    assert MAX_ANSWER_BYTES + SMALL_READ_BYTES <= UNFINISHED_BYTES


async def test_an_answer_of_the_largest_size_is_heard() -> None:
    async with bench() as on:
        answer = connected_of(MAX_ANSWER_BYTES)
        assert len(answer) == MAX_ANSWER_BYTES
        on.arrives(answer)
        assert on.handshake.heard.done()


@pytest.mark.threat("partial-connect-answers")
async def test_a_larger_answer_is_refused_by_its_first_bytes() -> None:
    async with bench() as on:
        on.arrives(connected_of(MAX_ANSWER_BYTES + 1)[:8])
        assert on.handshake.cause is DisconnectCause.FRAME_TOO_LARGE
        assert isinstance(on.handshake.heard.exception(), ConnectionClosed)
