"""Many principals share a pool that is full: whoever makes room leaves no chain of ends, and no place is lost."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import pytest

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
from proxy.core.errors import DisconnectCause
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
    """Connects at once, or while `slow` never."""

    timeout_seconds = 10.0

    def __init__(self) -> None:
        self.slow = False
        self.sockets: dict[BrokerConnection, MemoryTransport] = {}

    async def connect(self, checked: CheckedTarget, make: Callable[[], BrokerConnection]) -> BrokerConnection:
        if self.slow:
            await asyncio.Event().wait()
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
