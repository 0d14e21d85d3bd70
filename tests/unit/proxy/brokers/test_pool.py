"""Many principals share a pool that is full: whoever makes room leaves no chain of ends, and no place is lost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
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
from proxy.brokers.pool import BrokerPool, PoolKey, PoolLimits, Purpose
from proxy.brokers.request import SmallRequest
from proxy.brokers.target import BrokerAddress, CheckedTarget
from proxy.core.counters import Counters
from proxy.core.errors import BrokerUnreachable, ConnectionClosed, DisconnectCause
from proxy.core.log import open_log
from proxy.core.task_turns import TASKS_PER_TURN
from proxy.net.transport import SharedReadBuffer
from tests.support.brokers.one_broker import OneBroker
from tests.support.brokers.played import feed
from tests.support.brokers.raw_broker import CONNECTED
from tests.support.clients.list_clients import turns
from tests.support.cores import core_of
from tests.support.loops.loops import most_in_an_iteration, virtually
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
        feed(connection, CONNECTED)
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

    async def open(self, count: int) -> list[BrokerConnection]:
        """Open a connection for each of so many principals, and let all of them rest."""
        opened = [await self.pool.connection(key(f"old {number}")) for number in range(count)]
        await asyncio.sleep(2)
        self.pool.tick(asyncio.get_running_loop().time())
        return opened

    @property
    def opening(self) -> int:
        return self.pool.states()["connecting"]


def key(principal: str) -> PoolKey:
    return PoolKey(BROKER, principal, Purpose.LOOKUPS)


def ask(connection: BrokerConnection) -> int:
    request_id = connection.new_request_id()
    connection.ask(Question(CommandType.LOOKUP_RESPONSE), request_id, b"")
    return request_id


@asynccontextmanager
async def bench(total: int) -> AsyncIterator[Bench]:
    loop, log, crashes = asyncio.get_running_loop(), open_log("error"), list[BaseException]()
    dialer, counters = Dialer(), Counters(lambda error, _: crashes.append(error))
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
        core = core_of(counters=counters, log=log, clock=loop.time)
        budget, sockets = core.loop_budget, SimpleNamespace(shared=SharedReadBuffer(), hangup=hangup)
        pool = BrokerPool(core, cast(Any, sockets), cast(Any, dialer), check, frames, OneBroker(BROKER))
        pool.apply(limits)
        on = Bench(pool, dialer, crashes)
        try:
            yield on
        finally:
            await turns()
            await on.pool.close()
            await turns()
        assert (on.pool.size, len(budget), on.crashes) == (0, 0, [])


@pytest.mark.threat("questions-of-standing-broker")
@pytest.mark.threat("broker-closes-with-questions")
@pytest.mark.parametrize(("count", "questions", "closed"), [(4, 100, False), (40, 1, False), (1, 400, True)])
@virtually(bench, 40)
async def test_questions_of_all_connections_fail_a_few_in_an_iteration(
    on: Bench, count: int, questions: int, closed: bool
) -> None:
    connections = await on.open(count)
    for connection in connections:
        for _ in range(questions):
            ask(connection)
    loop, before = asyncio.get_running_loop(), Question.failures
    if closed:
        connections[0].abort(DisconnectCause.BROKER_CLOSED)
    else:
        on.pool.tick(loop.time() + 31)
        assert all(connection.open for connection in connections)
    assert Question.failures - before <= TASKS_PER_TURN
    assert await most_in_an_iteration(lambda: Question.failures - before, count * questions) <= TASKS_PER_TURN


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
            feed(connection, commands.lookup_connect(request_id, "pulsar://owner:6650"))

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


@pytest.mark.threat("pool-waiters-chain")
@virtually(bench, 256)
async def test_who_needs_a_place_closes_one_idle_connection_however_many_wait(on: Bench) -> None:
    await on.open(128)
    on.dialer.slow = True
    crowd = Crowd(on)
    for number in range(129):
        crowd.arrives(f"new {number}")
    await turns()
    assert (on.pool.size, on.pool.states()["idle"], on.opening) == (256, 127, 129)
    await crowd.empties()


@virtually(bench, 4)
async def test_a_second_connection_of_a_key_takes_a_free_place_and_nobody_elses(on: Bench) -> None:
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


TOTAL: Final = 3
STEPS: Final = (*3 * ("arrive",), *2 * ("dial",), "answer", "leave", "fail", "lose", "wait", "fewer", "more")


@pytest.mark.threat("pool-waiters-chain")
@pytest.mark.threat("token-each-takes-connections")
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5)), min_size=20, max_size=60))
@virtually(bench, TOTAL)
async def test_nobody_waits_for_ever_and_there_are_never_too_many_connections(
    on: Bench, steps: list[tuple[str, int]]
) -> None:
    crowd = Crowd(on)
    on.dialer.slow = True
    limit = most = TOTAL
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
            limit = TOTAL - 1 if step == "fewer" else TOTAL
            on.pool.apply(PoolLimits(per_key=2, total=limit, clocks=CLOCKS))
        # All that this brings about, in the turns that the loop has for it.
        await turns(30)
        # Those above a lowered limit stay until they have no question left.
        most = max(limit, min(most, on.pool.size))
        assert on.pool.size <= most
        assert on.pool.size >= limit or len({*crowd.tasks.values()}) <= on.opening
    await crowd.empties()
