"""Many principals share a pool that is full: whoever makes room leaves no chain of ends, and no place is lost."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import commands
from protocol.command_type import CommandType
from proxy.auth.credential_holders import CredentialHolders
from proxy.auth.own.broker_credentials import Plain
from proxy.brokers.clocks import BrokerClocks
from proxy.brokers.connect_frames import ConnectFrames, Versions
from proxy.brokers.connection import BrokerConnection
from proxy.brokers.counters import BrokerCounters
from proxy.brokers.pool import BrokerPool, PoolKey, PoolLimits, Purpose
from proxy.brokers.request import SmallRequest
from proxy.brokers.target import BrokerAddress, CheckedTarget
from proxy.core.counters import SharedCounters
from proxy.core.errors import BrokerUnreachable, ConnectionClosed, DisconnectCause
from proxy.core.log import open_log
from proxy.core.loop_budget import LoopBudget
from proxy.core.task_turns import TASKS_PER_TURN
from proxy.net.transport import SharedReadBuffer
from tests.support.brokers.one_broker import OneBroker
from tests.support.brokers.raw_broker import CONNECTED
from tests.support.clients.list_clients import turns
from tests.support.loops.loops import most_in_an_iteration, run_virtual
from tests.support.sockets.endpoints import hangup_watcher
from tests.support.sockets.memory_transport import MemoryTransport

BROKER: Final = BrokerAddress("broker", 6650)
# Seconds without a keep-alive, until an answer is overdue, and of rest.
CLOCKS: Final = BrokerClocks(0, 30.0, 3600.0)


class Dialer:
    """Connects at once, or while `slow` when the test says so; `dials` are those under way."""

    timeout_seconds = 10.0

    def __init__(self) -> None:
        self.slow = False
        self.dials: list[asyncio.Future[None]] = []
        self.sockets: dict[BrokerConnection, MemoryTransport] = {}

    async def connect(self, checked: CheckedTarget, make: Callable[[], BrokerConnection]) -> BrokerConnection:
        if self.slow:
            dial: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.dials.append(dial)
            await dial
        connection, socket = make(), MemoryTransport(asyncio.get_running_loop())
        self.sockets[connection] = socket
        socket.connect(connection)
        arrives(connection, CONNECTED)
        return connection


class Question(SmallRequest):
    """A question; `failures` counts those that failed."""

    failures = 0

    def ended(self, outcome: object) -> None:
        if isinstance(outcome, Exception):
            Question.failures += 1


class Bench:
    """A pool whose broker is played by the test."""

    def __init__(self, pool: BrokerPool, dialer: Dialer, crashes: list[BaseException]) -> None:
        self.pool = pool
        self.dialer = dialer
        self.crashes = crashes
        self.waiters: list[tuple[PoolKey, asyncio.Future[None]]] = []

    async def open(self, count: int) -> list[BrokerConnection]:
        """Open a connection for each of so many principals, and let all of them rest."""
        opened = [await self.pool.connection(key(f"old {number}")) for number in range(count)]
        await asyncio.sleep(2)
        self.pool.tick(asyncio.get_running_loop().time())
        return opened

    def asks(self, *principals: str) -> None:
        """Ask for a connection for principals that have none."""
        for principal in principals:
            assert self.pool.try_connection(key(principal)) is None
            self.waiters.append((key(principal), self.pool.change(key(principal))))

    async def leave(self) -> None:
        """Have all who wait leave, and close the pool."""
        await turns()
        for of, waiter in self.waiters:
            waiter.cancel()
            self.pool.forget(of, waiter)
        await self.pool.close()
        await turns()

    @property
    def opening(self) -> int:
        return self.pool.states()["connecting"]


def key(principal: str) -> PoolKey:
    return PoolKey(BROKER, principal, Purpose.LOOKUPS)


def arrives(connection: BrokerConnection, data: bytes) -> None:
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


def ask(connection: BrokerConnection) -> int:
    request_id = connection.new_request_id()
    connection.ask(Question(CommandType.LOOKUP_RESPONSE), request_id, b"")
    return request_id


@asynccontextmanager
async def bench(total: int) -> AsyncIterator[Bench]:
    loop, log, crashes = asyncio.get_running_loop(), open_log("error"), list[BaseException]()
    budget, dialer = LoopBudget(loop, loop.time), Dialer()
    counters = BrokerCounters(SharedCounters((), lambda error, _: crashes.append(error)))
    frames = ConnectFrames(
        loop,
        Plain(lambda: None),
        CredentialHolders(cast(Any, None)),
        Versions("proxy", "-proxy"),
        log,
        authentication=False,
    )

    async def check(broker: BrokerAddress) -> CheckedTarget:
        return CheckedTarget(broker, ["192.0.2.1"])

    async with hangup_watcher() as hangup:
        limits = PoolLimits(per_key=2, total=total, clocks=CLOCKS)
        side = (cast(Any, dialer), check, SharedReadBuffer(), hangup, budget, counters, log, limits, frames)
        on = Bench(BrokerPool(loop, *side, OneBroker(BROKER)), dialer, crashes)
        try:
            yield on
        finally:
            await on.leave()
        assert (on.pool.size, len(budget), on.crashes) == (0, 0, [])


def played(total: int, play: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with bench(total) as on:
            await play(on)

    run_virtual(main())


def depth() -> int:
    """Return how many functions are on the stack."""
    frame, count = sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count


@pytest.mark.threat("pool-waiters-chain")
def test_one_who_needs_a_place_closes_one_idle_connection_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    depths = list[int]()
    lost = BrokerPool.connection_lost

    def noted(pool: BrokerPool, connection: BrokerConnection, cause: DisconnectCause) -> None:
        depths.append(depth())
        lost(pool, connection, cause)

    async def play(on: Bench) -> None:
        await on.open(128)
        on.dialer.slow = True
        on.asks(*(f"new {number}" for number in range(128)))
        monkeypatch.setattr(BrokerPool, "connection_lost", noted)
        before = depth()
        on.asks("last")
        assert len(depths) == 1
        assert depths[0] - before < 20
        assert (on.pool.size, on.pool.states()["idle"], on.opening) == (256, 127, 129)
        assert on.opening == len(on.pool._scope)

    played(256, play)


@pytest.mark.threat("pool-waiters-chain")
def test_an_end_that_raises_gives_back_the_place_of_the_connection_to_be_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = BrokerPool.connection_lost

    def raising(pool: BrokerPool, connection: BrokerConnection, cause: DisconnectCause) -> None:
        lost(pool, connection, cause)
        raise RecursionError("too deep")

    async def play(on: Bench) -> None:
        await on.open(2)
        with monkeypatch.context() as patch:
            patch.setattr(BrokerPool, "connection_lost", raising)
            with pytest.raises(RecursionError):
                on.pool.try_connection(key("new"))
        assert (on.opening, on.pool.size) == (0, 1)
        on.dialer.slow = True
        on.asks("new", "newer")
        assert (on.opening, on.pool.size) == (2, 2)

    played(2, play)


@pytest.mark.threat("pool-waiters-chain")
def test_a_place_that_becomes_free_is_looked_for_once_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = [0]
    usable = cast(property, BrokerConnection.usable).fget
    assert usable is not None

    def noted(connection: BrokerConnection) -> Any:
        looked[0] += 1
        return usable(connection)

    async def play(on: Bench) -> None:
        connections = await on.open(50)
        asked = [ask(connection) for connection in connections]
        on.dialer.slow = True
        on.asks(*(f"new {number}" for number in range(500)))
        monkeypatch.setattr(BrokerConnection, "usable", property(noted))
        arrives(connections[7], commands.lookup_connect(asked[7], "pulsar://owner:6650"))
        # The connection has made room for one of those who wait; then nobody has room.
        assert (on.opening, on.pool.size) == (1, 50)
        assert looked[0] <= 4 * len(connections)

    played(50, play)


@pytest.mark.threat("questions-of-standing-broker")
@pytest.mark.parametrize(("count", "questions"), [(4, 100), (40, 1)])
def test_overdue_questions_of_all_connections_fail_a_few_in_an_iteration(count: int, questions: int) -> None:
    async def play(on: Bench) -> None:
        connections = await on.open(count)
        for connection in connections:
            for _ in range(questions):
                ask(connection)
        loop, before = asyncio.get_running_loop(), Question.failures
        on.pool.tick(loop.time() + 31)
        assert Question.failures - before <= TASKS_PER_TURN
        assert all(connection.open for connection in connections)
        assert await most_in_an_iteration(lambda: Question.failures - before, count * questions) <= TASKS_PER_TURN

    played(count, play)


class Crowd:
    """Principals that each want an answer of the broker; `served` are those that have it, in their order."""

    def __init__(self, on: Bench) -> None:
        self.on = on
        self.served: list[str] = []
        self.tasks: dict[asyncio.Task[None], str] = {}
        self.asked: list[tuple[BrokerConnection, int]] = []

    def arrives(self, principal: str) -> None:
        task = asyncio.get_running_loop().create_task(self._ask(principal))
        self.tasks[task] = principal
        task.add_done_callback(self.tasks.pop)

    async def _ask(self, principal: str) -> None:
        try:
            connection = await self.on.pool.connection(key(principal))
        except (BrokerUnreachable, ConnectionClosed):
            return
        self.asked.append((connection, ask(connection)))
        self.served.append(principal)

    def answer(self) -> None:
        """Answer the oldest question."""
        connection, request_id = self.asked.pop(0)
        if connection.open:
            arrives(connection, commands.lookup_connect(request_id, "pulsar://owner:6650"))

    async def empties(self) -> None:
        """Answer all questions, and let all dials under way succeed, until nobody waits."""
        self.on.dialer.slow = False
        for _ in range(200):
            for dial in self.on.dialer.dials:
                if not dial.done():
                    dial.set_result(None)
            while self.asked:
                self.answer()
            await turns()
            if not self.tasks and not self.asked:
                return
            await asyncio.sleep(2)
            self.on.pool.tick(asyncio.get_running_loop().time())
        raise AssertionError(f"{[*self.tasks.values()]} wait for ever: {self.on.pool.states()}")


def test_each_of_many_principals_needs_one_connection_however_few_there_may_be() -> None:
    async def play(on: Bench) -> None:
        crowd, names = Crowd(on), [f"client {number}" for number in range(100)]
        on.dialer.slow = True
        for name in names:
            crowd.arrives(name)
        while len(crowd.served) < len(names):
            await turns()
            assert on.pool.size <= 4
            # One place becomes free while others are being opened.
            on.dialer.dials.pop(0).set_result(None)
            await turns()
            crowd.answer()
        # First come, first served.
        assert crowd.served == names
        assert len(on.dialer.sockets) == len(names)

    played(4, play)


def test_a_second_connection_of_a_key_takes_a_free_place_and_nobody_elses() -> None:
    async def play(on: Bench) -> None:
        await on.open(3)
        crowd = Crowd(on)
        for _ in range(3):
            crowd.arrives("old 0")
            await turns()
        assert (on.pool.size, len(on.dialer.sockets)) == (4, 4)
        for _ in range(3):
            crowd.arrives("old 1")
            await turns()
        assert (on.pool.size, len(on.dialer.sockets)) == (4, 4)
        await crowd.empties()

    played(4, play)


def test_a_connection_that_may_be_asked_again_is_first_for_those_who_waited_for_it() -> None:
    async def play(on: Bench) -> None:
        (connection,) = await on.open(1)
        connection.pause_writing()
        crowd = Crowd(on)
        for name in ("old 0", "in line"):
            crowd.arrives(name)
            await turns()
        connection.resume_writing()
        await turns()
        assert (crowd.served, len(on.dialer.sockets)) == (["old 0"], 1)
        await crowd.empties()
        assert crowd.served == ["old 0", "in line"]

    played(1, play)


def test_who_waited_for_a_connection_that_ends_gets_another() -> None:
    async def play(on: Bench) -> None:
        on.pool.apply(PoolLimits(per_key=1, total=2, clocks=CLOCKS))
        (connection,) = await on.open(1)
        arrives(connection, commands.lookup_connect(ask(connection), "pulsar://owner:6650"))
        connection.pause_writing()
        crowd = Crowd(on)
        crowd.arrives("old 0")
        await turns()
        assert (crowd.served, len(on.dialer.sockets)) == ([], 1)
        connection.abort(DisconnectCause.BROKER_CLOSED)
        await turns()
        assert (crowd.served, len(on.dialer.sockets)) == (["old 0"], 2)
        await crowd.empties()

    played(2, play)


def test_a_place_whose_clients_have_left_is_not_lost_to_those_in_line() -> None:
    async def play(on: Bench) -> None:
        on.dialer.slow = True
        crowd = Crowd(on)
        crowd.arrives("gone")
        await turns()
        crowd.arrives("in line")
        await turns()
        on.dialer.slow = False
        on.dialer.dials[0].set_result(None)
        next(task for task, name in crowd.tasks.items() if name == "gone").cancel()
        await turns()
        await crowd.empties()
        assert crowd.served == ["in line"]

    played(1, play)


STEPS: Final = (
    "arrive",
    "arrive",
    "arrive",
    "answer",
    "leave",
    "dial",
    "dial",
    "fail",
    "lose",
    "wait",
    "fewer",
    "more",
)


@pytest.mark.threat("token-each-takes-connections")
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5)), min_size=20, max_size=60))
def test_nobody_waits_for_ever_and_there_are_never_too_many_connections(steps: list[tuple[str, int]]) -> None:
    total = 3

    async def play(on: Bench) -> None:
        crowd = Crowd(on)
        on.dialer.slow = True
        limit = most = total
        for step, number in steps:
            dial = next((dial for dial in on.dialer.dials if not dial.done()), None)
            if step == "arrive":
                crowd.arrives(f"client {number}")
            elif step == "answer" and crowd.asked:
                crowd.answer()
            elif step == "leave" and crowd.tasks:
                [*crowd.tasks][number % len(crowd.tasks)].cancel()
            elif step == "dial" and dial is not None:
                dial.set_result(None)
            elif step == "fail" and dial is not None:
                dial.set_exception(BrokerUnreachable("no route"))
            elif step == "lose" and on.dialer.sockets:
                [*on.dialer.sockets][number % len(on.dialer.sockets)].abort(DisconnectCause.BROKER_CLOSED)
            elif step == "wait":
                await asyncio.sleep(number / 2)
                on.pool.tick(asyncio.get_running_loop().time())
            elif step in ("fewer", "more"):
                limit = total - 1 if step == "fewer" else total
                on.pool.apply(PoolLimits(per_key=2, total=limit, clocks=CLOCKS))
            # All that this brings about, in the turns that the loop has for it.
            await turns(30)
            # Those above a lowered limit stay until they have no question left.
            most = max(limit, min(most, on.pool.size))
            assert on.pool.size <= most
            assert on.pool.size >= limit or len({*crowd.tasks.values()}) <= on.opening
        await crowd.empties()

    played(total, play)
