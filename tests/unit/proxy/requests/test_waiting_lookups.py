"""A lookup that waits is a record: few objects for the garbage collector, and no task."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from limiter.semaphore import AsyncSemaphore
from protocol import commands
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.fairness_key import DisplayNames
from proxy.brokers.request import BrokerRequest
from proxy.brokers.target import BrokerAddress
from proxy.clients.requests import ClientRequests, RequestServices
from proxy.core.counters import Counters
from proxy.core.errors import ConnectionClosed, DisconnectCause, RequestFailed
from proxy.requests import broker_turns
from proxy.requests.forwarding import ReadyRequests
from proxy.requests.lookups import LookupService
from proxy.telemetry.events.reports import Reports
from tests.support.brokers.one_broker import OneBroker, side_of
from tests.support.clients.list_clients import commands_in, turns
from tests.support.cores import core_of
from tests.support.loops.loops import run_virtual
from tests.support.proxies.counted import counted, counted_by

SECONDS = 10.0
# For tests that count on a machine of any speed.
NO_HURRY = 3600.0
MANY = 20_000
# What the garbage collector walks through for each lookup that waits: the record, its request, its place and that
# place's permit; and one that waits for its turn is in a line. As a task a lookup was 32 to 35 objects.
MOST_OBJECTS = 4


class Connection:
    """A connection to a broker that answers nothing by itself (`proxy.brokers.connection.BrokerConnection`)."""

    def __init__(self) -> None:
        self.questions: list[BrokerRequest] = []
        self.writes = 0

    def new_request_id(self) -> int:
        return len(self.questions)

    def ask(self, question: BrokerRequest, request_id: int, frame: bytes) -> None:
        self.questions.append(question)

    def write_joined(self) -> None:
        self.writes += 1


class Pool:
    """A pool with one connection, or none yet (`proxy.brokers.pool.BrokerPool`)."""

    def __init__(self) -> None:
        self.only = Connection()
        self.open = True
        self.waiters: list[asyncio.Future[None]] = []

    def try_connection(self, key: object) -> Connection | None:
        return self.only if self.open else None

    def change(self, key: object) -> asyncio.Future[None]:
        self.waiters.append(asyncio.get_running_loop().create_future())
        return self.waiters[-1]

    def forget(self, key: object, waiter: asyncio.Future[None]) -> None:
        self.waiters.remove(waiter)


class Sent:
    """What a client was sent, and in how many writes (`proxy.net.output.Output`)."""

    def __init__(self) -> None:
        self.frames = b""
        self.writes = 0

    def send(self, frame: bytes) -> None:
        self.frames += frame

    def gather(self) -> None:
        """Do nothing: frames are noted as they come."""

    def send_gathered(self) -> None:
        self.writes += 1

    def answers(self) -> list[pb.BaseCommand]:
        return commands_in(self.frames)[0]


class Crowd:
    """A client whose lookups wait, with all that a proxy has for them but sockets."""

    def __init__(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.pool, self.crashes = Pool(), list[BaseException]()
        self.counters = Counters(self._left)
        self.places = AsyncSemaphore("lookups", MANY, max_queue=0, timeout_seconds=1.0, clock=loop)
        broker = OneBroker(BrokerAddress("broker", 6650))
        core = core_of(counters=self.counters, clock=loop.time)
        self.service = LookupService(core, side_of(broker, self.pool), self.places)
        self.service.apply(MANY, seconds)
        none = cast(Any, None)
        services = RequestServices(core, self.service, none, none, Reports(core, DisplayNames()))
        self.leaving = services.leaving
        self.sent = Sent()
        told = {"crashed": self.crashes.append, "fewer_requests": lambda: None, "outstanding": 0}
        self.client = cast(
            Any, SimpleNamespace(network="192.0.2.1", principal=None, name="c", output=self.sent, **told)
        )
        self.requests = ClientRequests(self.client, services)

    def _left(self, error: BaseException, where: str) -> None:
        if where == "client that left":
            self.crashes.append(error)

    def ask(self, number: int) -> None:
        raw = commands.lookup_request(
            pb.CommandLookupTopic(topic="persistent://t/n/topic"), number, authoritative=False
        )[8:]
        assert self.requests.serve(commands.decode_command(raw), raw, None)

    @property
    def questions(self) -> list[BrokerRequest]:
        return self.pool.only.questions

    @property
    def held(self) -> tuple[int, int, int, int]:
        """Return what lookups hold: requests under way, places, turns, and places in line."""
        return (
            self.requests.tasks,
            self.places.held,
            self.service.forwarder.turns.asked,
            counted(self.counters, "lookups_waiting"),
        )


@asynccontextmanager
async def crowd(seconds: float = SECONDS) -> AsyncIterator[Crowd]:
    """Give a client's lookups; at the end nothing is held and nothing has crashed."""
    of = Crowd(seconds)
    yield of
    of.requests.close()
    of.leaving.finish()
    for question in of.questions:
        question.failed(ConnectionClosed(DisconnectCause.SHUTDOWN))
    await turns(5)
    assert of.held == (0, 0, 0, 0)
    assert (of.pool.waiters, of.crashes, of.client.outstanding) == ([], [], 0)
    assert len(of.service.forwarder.deadlines) == 0


def found(url: str = "pulsar://owner:6650") -> pb.BaseCommand:
    return commands.decode_command(commands.lookup_connect(0, url)[8:])


async def waiting(of: Crowd, count: int) -> None:
    for number in range(count):
        of.ask(number)
        if not number % 100:
            await turns(3)
    while len(of.service.forwarder.ready):
        await turns(1)


@pytest.mark.parametrize("wait", ["turn", "answer"])
async def test_a_lookup_that_waits_is_few_objects_and_no_task(wait: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_turns, "QUESTIONS_AT_A_BROKER", 1 if wait == "turn" else MANY)
    async with crowd(NO_HURRY) as of:
        await waiting(of, 10)
        gc.collect()
        before, tasks = len(gc.get_objects()), len(asyncio.all_tasks())
        await waiting(of, MANY - 10)
        # Tuples of numbers and strings are no longer tracked once the collector has seen them.
        gc.collect()
        objects = len(gc.get_objects()) - before
        assert of.client.outstanding == MANY
        assert counted(of.counters, "lookups_waiting") == (MANY - 1 if wait == "turn" else 0)
        assert len(asyncio.all_tasks()) == tasks
        assert objects <= (MOST_OBJECTS + (wait == "turn")) * MANY + 1000, objects / MANY


async def test_a_turn_that_comes_as_its_client_leaves_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_turns, "QUESTIONS_AT_A_BROKER", 1)
    async with crowd() as of:
        for number in range(3):
            of.ask(number)
        await turns(2)
        assert counted(of.counters, "lookups_waiting") == 2
        of.questions[0].answered(found())
        of.requests.close()
        of.leaving.finish()
        await turns(3)
        assert (len(of.questions), of.held) == (1, (0, 0, 0, 0))


@pytest.mark.parametrize("wait", ["turn", "connection", "answer"])
def test_a_lookup_whose_time_is_over_waits_for_nothing(wait: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        monkeypatch.setattr(broker_turns, "QUESTIONS_AT_A_BROKER", 1)
        async with crowd() as of:
            of.pool.open = wait != "connection"
            of.ask(1)
            if wait == "turn":
                await turns(2)
                of.ask(2)
            await asyncio.sleep(SECONDS + 1)
            answers = of.sent.answers()
            assert [answer.lookupTopicResponse.error for answer in answers] == [ServerError.ServiceNotReady] * len(
                answers
            )
            assert len(answers) == (2 if wait == "turn" else 1)
            # What a broker still works on keeps its place and its turn.
            asked = 0 if wait == "connection" else 1
            assert of.held == (0, asked, asked, 0)
            assert of.pool.waiters == []

    run_virtual(play())


@pytest.mark.parametrize("wait", ["turn", "connection", "answer"])
async def test_a_client_that_leaves_takes_its_lookups_along(wait: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_turns, "QUESTIONS_AT_A_BROKER", 1 if wait == "turn" else MANY)
    async with crowd() as of:
        of.pool.open = wait != "connection"
        await waiting(of, 5)
        assert of.held[0] == 5
        of.requests.close()
        of.leaving.finish()
        asked = {"turn": 1, "connection": 0, "answer": 5}[wait]
        assert of.held == (0, asked, asked, 0)
        assert (of.pool.waiters, of.sent.answers()) == ([], [])


async def test_a_lookup_whose_broker_fails_is_asked_once_more_and_then_fails() -> None:
    async with crowd() as of:
        of.ask(1)
        await turns(2)
        of.questions[0].failed(ConnectionClosed(DisconnectCause.BROKER_CLOSED))
        await turns(2)
        assert (len(of.questions), of.sent.answers(), of.held[1:3]) == (2, [], (1, 1))
        of.questions[1].failed(ConnectionClosed(DisconnectCause.BROKER_CLOSED))
        await turns(2)
        assert len(of.questions) == 2
        assert [answer.lookupTopicResponse.error for answer in of.sent.answers()] == [ServerError.ServiceNotReady]


async def test_a_connection_that_opens_lets_a_lookup_go_on_and_one_that_does_not_fails_it() -> None:
    async with crowd() as of:
        of.pool.open = False
        of.ask(1)
        of.ask(2)
        await turns(2)
        opened, refused = of.pool.waiters
        of.pool.open = True
        opened.set_result(None)
        refused.set_exception(RequestFailed(ServerError.AuthenticationError, "no"))
        await turns(4)
        assert len(of.questions) == 1
        assert [answer.lookupTopicResponse.error for answer in of.sent.answers()] == [ServerError.AuthenticationError]


async def test_an_error_in_an_answer_fails_that_lookup_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with crowd() as of:
        of.ask(1)
        of.ask(2)
        await turns(2)
        followed = LookupService.followed

        def broken(service: LookupService, answer: pb.CommandLookupTopicResponse) -> tuple[str, bool]:
            if answer.brokerServiceUrl == "pulsar://broken:1":
                raise ZeroDivisionError
            return followed(service, answer)

        monkeypatch.setattr(LookupService, "followed", broken)
        of.questions[0].answered(found("pulsar://broken:1"))
        of.questions[1].answered(found())
        await turns(2)
        first, second = of.sent.answers()
        assert (first.lookupTopicResponse.error, second.lookupTopicResponse.response) == (
            ServerError.UnknownError,
            pb.CommandLookupTopicResponse.Connect,
        )
        assert counted_by(of.counters, "internal_errors") == {"lookup": 1}


async def test_a_client_whose_answer_cannot_be_written_crashes_alone() -> None:
    async with crowd() as of:
        of.ask(1)
        await turns(2)
        of.sent.send = None  # type: ignore[assignment, method-assign]
        of.questions[0].answered(found())
        await turns(2)
        assert [type(crash) for crash in of.crashes] == [TypeError]
        assert of.held == (0, 0, 0, 0)
        of.crashes.clear()


async def test_a_request_that_ends_with_its_client_ends_once() -> None:
    lost = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context["exception"]))
    async with crowd() as of:
        of.ask(1)
        await turns(2)
        of.sent.send = None  # type: ignore[assignment, method-assign]
        of.client.crashed = lambda _: of.requests.close()
        of.questions[0].answered(found())
        await turns(2)
        assert (of.held, lost, of.client.outstanding) == ((0, 0, 0, 0), [], 0)


def test_a_request_whose_client_cannot_be_ended_gives_back_what_it_holds() -> None:
    async def main() -> None:
        lost = list[str]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(str(context["exception"])))
        async with crowd() as on:
            for number in range(3):
                on.ask(number)
            await turns()

            def broken(*_: object) -> None:
                raise RuntimeError("its own end")

            on.sent.send = on.client.crashed = broken  # type: ignore[assignment, method-assign]
            for question in on.questions:
                question.failed(ValueError("an answer that nobody expects"))
            await turns()
            assert (on.held, lost) == ((0, 0, 0, 0), ["its own end"] * 3)

    run_virtual(main())


async def test_a_client_whose_end_raises_keeps_no_other_from_being_written_to() -> None:
    written, crashes = list[int](), list[BaseException]()
    ready = ReadyRequests(asyncio.get_running_loop(), crashes.append)

    class Output:
        def __init__(self, number: int) -> None:
            self.number = number

        def gather(self) -> None: ...

        def send_gathered(self) -> None:
            written.append(self.number)
            if not self.number:
                raise ValueError

        def crashed(self, error: BaseException) -> None:
            raise RuntimeError("its own end") from error

    def go_on() -> None:
        for number in range(3):
            ready.joined(cast(Any, Output(number)))

    ready.add(cast(Any, SimpleNamespace(go_on=go_on)))
    await turns()
    assert written == [0, 1, 2]
    assert [type(error) for error in crashes] == [RuntimeError]
