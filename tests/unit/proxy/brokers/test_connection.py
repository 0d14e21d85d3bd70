"""A shared connection to a broker: unanswered questions are given up one by one, and its frames take turns."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest

from protocol import commands
from protocol.command_type import CommandType
from protocol.commands import PING_FRAME, PONG_FRAME
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SlabBody, SlabPool
from proxy.brokers import connection as brokers_connection
from proxy.brokers.clocks import BrokerClocks
from proxy.brokers.connection import UNANSWERED_QUESTIONS, UNKNOWN_ANSWERS, BrokerConnection, Reports
from proxy.brokers.request import BrokerRequest, SmallRequest
from proxy.core.counters import Counters
from proxy.core.errors import DisconnectCause, QuestionUnanswered
from proxy.core.loop_budget import ITERATION_SECONDS, TASK_SECONDS, LoopBudget
from proxy.net.transport import SMALL_READ_BYTES, SharedReadBuffer
from tests.support.brokers.played import crash, feed
from tests.support.brokers.raw_broker import CONNECTED, list_answer
from tests.support.clients.list_clients import turns
from tests.support.loops.loops import virtually
from tests.support.sockets.endpoints import hangup_watcher
from tests.support.sockets.memory_transport import MemoryTransport

CLOCKS = BrokerClocks(keep_alive_seconds=0, answer_timeout_seconds=10.0, idle_seconds=3600)


class Question(SmallRequest):
    """A question, and how it ended."""

    outcome: pb.BaseCommand | Exception | None = None

    def ended(self, outcome: pb.BaseCommand | Exception) -> None:
        assert self.outcome is None
        self.outcome = outcome

    @property
    def answered_well(self) -> bool:
        return self.outcome is not None and not isinstance(self.outcome, Exception)


class Pool:
    """Note what a connection reports."""

    def __init__(self) -> None:
        self.causes: list[DisconnectCause] = []
        self.counters = Counters(lambda error, _: crash(error))
        self.reports = Reports(self.counters, _nothing, _nothing, self._lost, _nothing, self._fail)

    @property
    def unanswered(self) -> float:
        return self.counters[UNANSWERED_QUESTIONS].value

    @property
    def unknown(self) -> float:
        return self.counters[UNKNOWN_ANSWERS].value

    def _lost(self, connection: BrokerConnection, cause: DisconnectCause) -> None:
        self.causes.append(cause)

    def _fail(self, questions: Iterable[BrokerRequest], error: Exception) -> None:
        for question in questions:
            question.failed(error)


def _nothing(*_: object) -> None:
    pass


class Bench:
    """A connection in memory whose broker is played by the test."""

    def __init__(self, connection: BrokerConnection, pool: Pool, socket: MemoryTransport, budget: LoopBudget) -> None:
        self.connection = connection
        self.pool = pool
        self.socket = socket
        self.budget = budget

    def arrives(self, data: bytes) -> None:
        feed(self.connection, data)

    def ask(self, kind: CommandType = CommandType.LOOKUP_RESPONSE) -> tuple[int, Question]:
        request_id, question = self.connection.new_request_id(), Question(kind)
        self.connection.ask(question, request_id, b"")
        return request_id, question

    async def pass_seconds(self, seconds: int, *, pongs: bool) -> None:
        """Let time pass, the clocks being looked at each second; the broker answers PINGs if `pongs`."""
        for _ in range(seconds):
            await asyncio.sleep(1)
            self.connection.tick(self.connection.loop.time(), CLOCKS)
            if pongs and self.pings():
                self.arrives(PONG_FRAME)

    def pings(self) -> int:
        found = self.socket.peer_bytes.count(PING_FRAME)
        self.socket.peer_bytes.clear()
        return found


def answer(request_id: int) -> bytes:
    return commands.lookup_connect(request_id, "pulsar://owner:6650")


@asynccontextmanager
async def bench(now: Callable[[], float] | None = None) -> AsyncIterator[Bench]:
    loop = asyncio.get_running_loop()
    budget, pool = LoopBudget(loop, now or loop.time), Pool()
    async with hangup_watcher() as hangup:
        connection = BrokerConnection(loop, SharedReadBuffer(), hangup, budget, pool.reports, b"")
        socket = MemoryTransport(loop)
        socket.connect(connection)
        on = Bench(connection, pool, socket, budget)
        on.arrives(CONNECTED)
        yield on
        connection.abort(DisconnectCause.SHUTDOWN)
        await turns()
        assert (len(budget), len(hangup)) == (0, 0)


# --- questions that nobody answers ----------------------------------------------------------------


@pytest.mark.threat("unanswered-lookup")
@virtually(bench)
async def test_a_question_left_unanswered_ends_no_other(on: Bench) -> None:
    _, left = on.ask()
    await on.pass_seconds(6, pongs=True)
    later_id, later = on.ask()
    await on.pass_seconds(6, pongs=True)
    assert isinstance(left.outcome, QuestionUnanswered)
    assert (on.connection.usable, on.pool.unanswered) == (True, 1)
    on.arrives(answer(later_id))
    assert later.answered_well


@pytest.mark.parametrize("late_answer", [answer, lambda asked: list_answer(asked, ("x" * 100_000,))])
@virtually(bench)
async def test_an_answer_that_comes_too_late_is_passed_over(on: Bench, late_answer: Callable[[int], bytes]) -> None:
    late_id, late = on.ask()
    await on.pass_seconds(12, pongs=True)
    assert isinstance(late.outcome, QuestionUnanswered)
    next_id, next_question = on.ask()
    on.arrives(late_answer(late_id) + answer(next_id))
    await turns(40)
    assert next_question.answered_well
    assert (on.pool.unknown, on.pool.causes) == (0, [])
    on.arrives(answer(late_id))
    assert on.pool.unknown == 1


@virtually(bench)
async def test_a_broker_that_answers_nothing_at_all_ends_with_its_connection(on: Bench) -> None:
    questions = [on.ask()[1] for _ in range(3)]
    await on.pass_seconds(6, pongs=False)
    assert on.pings() == 1
    assert on.connection.open
    await on.pass_seconds(6, pongs=False)
    assert on.pool.causes == [DisconnectCause.BROKER_SILENT]
    assert all(isinstance(question.outcome, Exception) for question in questions)


@virtually(bench)
async def test_a_broker_that_leaves_too_many_questions_is_silent(on: Bench) -> None:
    for _ in range(brokers_connection.MOST_GIVEN_UP + 1):
        on.ask()
    await on.pass_seconds(12, pongs=True)
    assert on.pool.causes == [DisconnectCause.BROKER_SILENT]


@virtually(bench)
async def test_a_list_whose_bytes_stop_in_the_middle_ends_the_connection(
    on: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Question, "on_response_head", lambda _, head: SlabBody(head.rest_bytes, SlabPool(0)))
    request_id, _ = on.ask(CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE)
    on.arrives(list_answer(request_id, ("x" * 100_000,))[:50_000])
    await on.pass_seconds(12, pongs=False)
    assert on.pool.causes == [DisconnectCause.BROKER_SILENT]


# --- writing --------------------------------------------------------------------------------------


async def test_the_questions_of_one_iteration_are_one_write() -> None:
    async with bench() as on:
        for number in range(3):
            on.connection.ask(Question(CommandType.LOOKUP_RESPONSE), number, b"question %d" % number)
        await turns(1)
        assert on.socket.events[-1] == "write 30"


async def test_one_pong_at_most_waits_for_a_broker_that_does_not_read() -> None:
    async with bench(now=lambda: 100.0) as on:
        on.socket.peer_bytes.clear()
        on.socket.room = 0
        for _ in range(100):
            on.arrives(PING_FRAME * (SMALL_READ_BYTES // len(PING_FRAME)))
            await turns(2)
        assert on.socket.largest_buffer <= len(PONG_FRAME)
        on.socket.take(1 << 20)
        assert bytes(on.socket.peer_bytes) == 2 * PONG_FRAME


# --- turns ----------------------------------------------------------------------------------------


async def test_answers_are_handed_on_a_share_at_a_time() -> None:
    async with bench(now=lambda: 100.0) as on:
        asked = [on.ask() for _ in range(80)]
        data = b"".join(answer(request_id) for request_id, _ in asked)
        assert len(answer(1)) * 40 < SMALL_READ_BYTES
        on.arrives(data[:SMALL_READ_BYTES])
        at_once = sum(question.outcome is not None for _, question in asked)
        assert at_once <= ITERATION_SECONDS / TASK_SECONDS + 1
        assert not on.socket.is_reading()
        await turns(5)
        on.arrives(data[SMALL_READ_BYTES:])
        await turns(12)
        assert all(question.answered_well for _, question in asked)
        assert on.socket.is_reading()


@pytest.mark.threat("tiny-answer-chunks")
async def test_answers_that_come_in_single_bytes_wait_for_turns_when_the_time_is_spent() -> None:
    now = 100.0
    async with bench(now=lambda: now) as on:
        request_id, question = on.ask()
        for byte in answer(request_id):
            # Others have used this iteration up.
            on.budget.spent()
            now += 2 * ITERATION_SECONDS
            on.arrives(bytes((byte,)))
            assert not on.socket.is_reading()
            while not on.socket.is_reading():
                await turns(1)
        assert question.answered_well
