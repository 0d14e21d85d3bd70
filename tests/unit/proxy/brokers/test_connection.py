"""A shared connection to a broker: unanswered questions are given up one by one, and its frames take turns."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from protocol import commands
from protocol.command_type import CommandType
from protocol.commands import PING_FRAME, PONG_FRAME
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SlabBody, SlabPool
from proxy.brokers import connection as brokers_connection
from proxy.brokers.clocks import BrokerClocks
from proxy.brokers.connection import BrokerConnection
from proxy.brokers.endpoint import FRAMES_PER_TURN, MOST_CHALLENGES
from proxy.brokers.request import BrokerRequest, SmallRequest
from proxy.core.errors import DisconnectCause, QuestionUnanswered, RequestFailed
from proxy.core.loop_budget import ITERATION_SECONDS, TASK_SECONDS, LoopBudget
from proxy.net.transport import SMALL_READ_BYTES, SharedReadBuffer
from tests.support.auth.credentials import challenge
from tests.support.brokers.raw_broker import CONNECTED, list_answer
from tests.support.clients.list_clients import turns
from tests.support.loops.loops import run_virtual
from tests.support.sockets.endpoints import hangup_watcher
from tests.support.sockets.memory_transport import MemoryTransport

CLOCKS = BrokerClocks(keep_alive_seconds=0, answer_timeout_seconds=10.0, idle_seconds=3600)


class Question(SmallRequest):
    """A question, and how it ended."""

    outcome: pb.BaseCommand | Exception | None = None

    def ended(self, outcome: pb.BaseCommand | Exception) -> None:
        assert self.outcome is None
        self.outcome = outcome


class Owner:
    """Note what a connection reports (`proxy.brokers.request.BrokerConnectionOwner`)."""

    def __init__(self) -> None:
        self.causes: list[DisconnectCause] = []
        self.unknown = self.unanswered = self.challenges = 0

    def connection_changed(self, connection: BrokerConnection, *, usable: bool, idle: bool) -> None:
        pass

    def connection_answered(self, connection: BrokerConnection) -> None:
        pass

    def connection_lost(self, connection: BrokerConnection, cause: DisconnectCause) -> None:
        self.causes.append(cause)

    def fail(self, questions: Iterable[BrokerRequest], error: Exception) -> None:
        for question in questions:
            question.failed(error)

    def connection_paused(self) -> None:
        pass

    def question_unanswered(self) -> None:
        self.unanswered += 1

    def unknown_answer(self) -> None:
        self.unknown += 1

    def connection_challenged(self, connection: BrokerConnection, challenge: pb.CommandAuthChallenge) -> None:
        self.challenges += 1

    def connection_crashed(self, error: BaseException) -> None:
        raise error


class Bench:
    """A connection in memory whose broker is played by the test."""

    def __init__(self, connection: BrokerConnection, owner: Owner, socket: MemoryTransport, budget: LoopBudget) -> None:
        self.connection = connection
        self.owner = owner
        self.socket = socket
        self.budget = budget

    def arrives(self, data: bytes) -> None:
        """Let `data` be read, as much at a time as there is room for."""
        while data and self.connection.cause is None:
            place = self.connection.get_buffer(-1)
            count = min(len(place), len(data))
            place[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]

    def ask(self) -> tuple[int, Question]:
        request_id = self.connection.new_request_id()
        question = Question(CommandType.LOOKUP_RESPONSE)
        self.connection.ask(question, request_id, b"")
        return request_id, question

    def tick(self) -> None:
        self.connection.tick(self.connection.loop.time(), CLOCKS)

    async def pass_seconds(self, seconds: int, *, pongs: bool) -> None:
        """Let time pass, the clocks being looked at each second; the broker answers PINGs if `pongs`."""
        for _ in range(seconds):
            await asyncio.sleep(1)
            self.tick()
            if pongs and self.pings():
                self.arrives(PONG_FRAME)

    def pings(self) -> int:
        found = self.socket.peer_bytes.count(PING_FRAME)
        self.socket.peer_bytes.clear()
        return found


def answer(request_id: int) -> bytes:
    return commands.lookup_connect(request_id, "pulsar://owner:6650")


def answered(question: Question) -> bool:
    return question.outcome is not None and not isinstance(question.outcome, Exception)


@asynccontextmanager
async def bench(now: Callable[[], float] | None = None, *, connected: bool = True) -> AsyncIterator[Bench]:
    loop = asyncio.get_running_loop()
    budget, owner = LoopBudget(loop, now or loop.time), Owner()
    async with hangup_watcher() as hangup:
        connection = BrokerConnection(loop, SharedReadBuffer(), hangup, owner, budget, b"")
        socket = MemoryTransport(loop)
        socket.connect(connection)
        on = Bench(connection, owner, socket, budget)
        if connected:
            on.arrives(CONNECTED)
        yield on
        connection.abort(DisconnectCause.SHUTDOWN)
        await turns()
        assert (len(budget), len(hangup)) == (0, 0)


def played(play: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with bench() as on:
            await play(on)

    run_virtual(main())


# --- questions that nobody answers ----------------------------------------------------------------


def test_a_question_left_unanswered_ends_no_other() -> None:
    async def play(on: Bench) -> None:
        _, left = on.ask()
        await on.pass_seconds(6, pongs=True)
        later_id, later = on.ask()
        await on.pass_seconds(6, pongs=True)
        assert isinstance(left.outcome, QuestionUnanswered)
        assert (on.connection.open, on.connection.usable, on.owner.unanswered) == (True, True, 1)
        on.arrives(answer(later_id))
        assert answered(later)

    played(play)


def test_an_answer_that_comes_too_late_is_passed_over() -> None:
    async def play(on: Bench) -> None:
        late_id, late = on.ask()
        await on.pass_seconds(12, pongs=True)
        assert isinstance(late.outcome, QuestionUnanswered)
        next_id, next_question = on.ask()
        on.arrives(answer(late_id) + answer(next_id))
        assert answered(next_question)
        assert on.owner.unknown == 0
        on.arrives(answer(late_id))
        assert on.owner.unknown == 1

    played(play)


def test_a_large_answer_that_comes_too_late_is_passed_over() -> None:
    async def play(on: Bench) -> None:
        late_id, _ = on.ask()
        await on.pass_seconds(12, pongs=True)
        on.arrives(list_answer(late_id, ("x" * 100_000,)))
        next_id, next_question = on.ask()
        on.arrives(answer(next_id))
        await turns(40)
        assert answered(next_question)
        assert (on.owner.unknown, on.owner.causes) == (0, [])

    played(play)


def test_a_broker_that_answers_nothing_at_all_ends_with_its_connection() -> None:
    async def play(on: Bench) -> None:
        questions = [on.ask()[1] for _ in range(3)]
        await on.pass_seconds(6, pongs=False)
        assert on.pings() == 1
        assert on.connection.open
        await on.pass_seconds(6, pongs=False)
        assert on.owner.causes == [DisconnectCause.BROKER_SILENT]
        assert all(isinstance(question.outcome, Exception) for question in questions)

    played(play)


def test_a_broker_that_stops_answering_pings_after_a_question_was_given_up_is_silent() -> None:
    async def play(on: Bench) -> None:
        on.ask()
        await on.pass_seconds(11, pongs=True)
        on.ask()
        await on.pass_seconds(5, pongs=True)
        assert on.connection.open
        await on.pass_seconds(7, pongs=False)
        assert on.owner.causes == [DisconnectCause.BROKER_SILENT]

    played(play)


def test_a_broker_that_leaves_too_many_questions_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers_connection, "MOST_GIVEN_UP", 5)

    async def play(on: Bench) -> None:
        for _ in range(6):
            on.ask()
        await on.pass_seconds(12, pongs=True)
        assert on.owner.causes == [DisconnectCause.BROKER_SILENT]
        assert on.owner.unanswered == 5

    played(play)


def test_a_list_whose_bytes_stop_in_the_middle_ends_the_connection() -> None:
    class Diverted(Question):
        def on_response_head(self, head: Any) -> SlabBody:
            return SlabBody(head.rest_bytes, SlabPool(0))

        def body_complete(self) -> None:
            pass

    async def play(on: Bench) -> None:
        question = Diverted(CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE)
        request_id = on.connection.new_request_id()
        on.connection.ask(question, request_id, b"")
        on.arrives(list_answer(request_id, ("x" * 100_000,))[:50_000])
        await on.pass_seconds(12, pongs=False)
        assert on.owner.causes == [DisconnectCause.BROKER_SILENT]

    played(play)


# --- questions together ---------------------------------------------------------------------------


async def test_the_questions_of_one_iteration_are_one_write() -> None:
    async with bench() as on:
        written = [event for event in on.socket.events if event.startswith("write")]
        for number in range(3):
            on.connection.ask(Question(CommandType.LOOKUP_RESPONSE), number, b"question %d" % number)
        assert [event for event in on.socket.events if event.startswith("write")] == written
        await turns(1)
        assert [event for event in on.socket.events if event.startswith("write")] == [*written, "write 30"]
        on.connection.ask(Question(CommandType.LOOKUP_RESPONSE), 4, b"alone")
        on.connection.write_joined()
        await turns(2)
        assert [event for event in on.socket.events if event.startswith("write")][-1] == "write 5"


async def test_questions_of_a_connection_that_ends_at_once_fail_unwritten() -> None:
    async with bench() as on:
        question = Question(CommandType.LOOKUP_RESPONSE)
        on.connection.ask(question, 1, b"question")
        on.connection.abort(DisconnectCause.SHUTDOWN)
        await turns(2)
        assert isinstance(question.outcome, Exception)
        assert "write 8" not in on.socket.events


# --- challenges -----------------------------------------------------------------------------------


@pytest.mark.threat("auth-challenge-flood")
async def test_a_broker_that_goes_on_asking_before_connected_is_left() -> None:
    async with bench(lambda: 100.0, connected=False) as on:
        for asked in range(1, MOST_CHALLENGES + 1):
            on.arrives(challenge())
            assert on.owner.challenges == asked
            on.connection.respond(b"response")
        assert on.connection.open
        on.arrives(challenge())
        assert on.owner.challenges == MOST_CHALLENGES
        assert isinstance(on.connection.ready.exception(), RequestFailed)
        assert on.owner.causes == [DisconnectCause.BROKER_REFUSED]


async def test_a_broker_may_ask_for_newer_credentials_as_long_as_it_is_connected() -> None:
    async with bench(lambda: 100.0) as on:
        for _ in range(3 * MOST_CHALLENGES):
            on.arrives(challenge())
            on.connection.respond(b"response")
        assert on.owner.challenges == 3 * MOST_CHALLENGES
        assert on.connection.usable


async def test_a_new_connection_is_not_asked_at_once_whether_it_lives() -> None:
    async with bench() as on:
        clocks = replace(CLOCKS, keep_alive_seconds=30.0)
        opened = on.connection.loop.time()
        on.connection.tick(opened + 29, clocks)
        assert on.pings() == 0
        on.connection.tick(opened + 31, clocks)
        assert on.pings() == 1


# --- turns ----------------------------------------------------------------------------------------


async def test_answers_are_handed_on_a_share_at_a_time() -> None:
    async with bench(now=lambda: 100.0) as on:
        asked = [on.ask() for _ in range(80)]
        data = b"".join(answer(request_id) for request_id, _ in asked)
        assert len(answer(1)) * 40 < SMALL_READ_BYTES
        on.arrives(data[:SMALL_READ_BYTES])
        share = ITERATION_SECONDS / TASK_SECONDS
        at_once = sum(question.outcome is not None for _, question in asked)
        assert share - 1 <= at_once <= share + 1
        assert not on.socket.is_reading()
        await turns(5)
        on.arrives(data[SMALL_READ_BYTES:])
        await turns(12)
        assert all(question.outcome is not None for _, question in asked)
        assert on.socket.is_reading()


async def test_frames_that_nobody_asked_for_take_turns() -> None:
    async with bench(now=lambda: 100.0) as on:
        unknown = commands.error(1 << 40, 1, "")
        frames = SMALL_READ_BYTES // len(unknown)
        assert frames > 2 * FRAMES_PER_TURN
        on.arrives(unknown * frames)
        assert on.owner.unknown == FRAMES_PER_TURN
        await turns(1)
        assert on.owner.unknown == 2 * FRAMES_PER_TURN
        await turns(4)
        assert on.owner.unknown == frames


@pytest.mark.threat("tiny-answer-chunks")
async def test_answers_that_come_in_single_bytes_wait_for_turns_when_the_time_is_spent() -> None:
    now = 100.0
    async with bench(now=lambda: now) as on:
        request_id, question = on.ask()
        rests = 0
        for byte in answer(request_id):
            # Others have used this iteration up.
            on.budget.spent()
            now += 2 * ITERATION_SECONDS
            on.arrives(bytes((byte,)))
            assert not on.socket.is_reading()
            rests += 1
            while not on.socket.is_reading():
                await turns(1)
        assert answered(question)
        assert rests == len(answer(request_id))


async def test_a_list_that_comes_in_single_bytes_waits_for_turns_when_the_time_is_spent() -> None:
    class Diverted(Question):
        complete = False

        def on_response_head(self, head: Any) -> SlabBody:
            return SlabBody(head.rest_bytes, SlabPool(0))

        def body_complete(self) -> None:
            self.complete = True

    now = 100.0
    async with bench(now=lambda: now) as on:
        question = Diverted(CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE)
        request_id = on.connection.new_request_id()
        on.connection.ask(question, request_id, b"")
        data = list_answer(request_id, ("x" * 20_000,))
        on.arrives(data[:18_000])
        for byte in data[18_000:19_000]:
            on.budget.spent()
            now += 2 * ITERATION_SECONDS
            on.arrives(bytes((byte,)))
            assert on.socket.events[-1] == "pause reading"
            while on.socket.events[-1] != "resume reading":
                await turns(1)
        on.arrives(data[19_000:])
        await turns(2)
        assert question.complete


async def test_a_read_that_filled_its_buffer_is_followed_by_a_rest() -> None:
    async with bench(now=lambda: 100.0) as on:
        on.arrives(PONG_FRAME * (SMALL_READ_BYTES // len(PONG_FRAME)) + b"\0")
        assert on.socket.events[-1] == "pause reading"
        await turns(2)
        assert on.socket.events[-1] == "resume reading"


async def test_hundreds_of_pings_are_answered_by_one_pong_without_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(now=lambda: 100.0) as on:
        monkeypatch.setattr(commands, "decode_command", None)
        on.socket.peer_bytes.clear()
        on.arrives(PING_FRAME * 300)
        assert bytes(on.socket.peer_bytes) == PONG_FRAME
