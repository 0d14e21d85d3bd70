"""Share request connections to brokers among clients of the same principal, and bound how many there are.

A connection is pooled by broker, principal and purpose: GET_TOPICS and GET_SCHEMA carry no principal, the broker
authorizes them by the connection's CONNECT, so connections are never shared across principals; lists have connections
of their own, so that a pause for memory holds up no lookup. A paused connection gets no new question.

Where clients' own credentials are forwarded there are more keys than connections may be. Then keys stand in line, each
once and in their order: a connection that has no question left is closed for the first of them.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple, Self

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.identity import AuthenticationFailed
from proxy.brokers.clocks import BrokerClocks
from proxy.brokers.connect_frames import ConnectFrames
from proxy.brokers.connection import BrokerConnection, Reports
from proxy.brokers.dialer import Dialer
from proxy.brokers.discovery import Brokers
from proxy.brokers.request import BrokerRequest
from proxy.brokers.sockets import Sockets
from proxy.brokers.target import BrokerAddress, CheckedTarget
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.config.values import BROKER_RECEIVE_TIMES
from proxy.core.counters import counter_by, gauge_by
from proxy.core.errors import (
    BrokerNotReady,
    BrokerUnavailable,
    BrokerUnreachable,
    ConnectionClosed,
    CredentialsUnavailable,
    DisconnectCause,
    NoSocket,
    RequestFailed,
    TargetRefused,
    TargetUnknown,
    own_copy,
)
from proxy.core.log import LinePace
from proxy.core.task_turns import TaskTurns
from proxy.core.tasks import TaskScope

# A broker works on the questions of a connection one by one, so a second keeps it busy; more only cost handshakes.
CONNECTIONS_A_KEY: Final = 2
# This part of all connections have the large receive buffer: lists are quicker with it, but hundreds of brokers,
# principals or purposes at once would hold a gigabyte in the kernel while memory for answers is short.
LARGE_BUFFERS_OF: Final = 3
CONNECTIONS: Final = gauge_by("state", "broker_connections", "Request connections to brokers by state.")
OPEN_FAILURES: Final = counter_by(
    "cause", "broker_open_failures", "Request connections to brokers that could not be opened, by cause."
)


class Purpose(StrEnum):
    """The use of a pooled connection."""

    LISTS = "lists"
    LOOKUPS = "lookups"
    SCHEMAS = "schemas"


class PoolKey(NamedTuple):
    """Name the connections that may be shared: same broker, same principal (None without authentication), same
    purpose.
    """

    broker: BrokerAddress
    principal: Hashable
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """How many connections there may be, their clocks, how long a challenge may take to be answered, and the receive
    buffer of those that have not the large one (0: all have it).
    """

    total: int
    clocks: BrokerClocks
    challenge_seconds: float = 60.0
    per_key: int = CONNECTIONS_A_KEY
    small_receive_bytes: int = 0

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the limits of a configuration."""
        return cls(
            total=config.broker_connections_total,
            clocks=BrokerClocks.of(config),
            challenge_seconds=config.authentication_refresh_check_seconds,
            small_receive_bytes=config.broker_receive_bytes // BROKER_RECEIVE_TIMES,
        )


Check = Callable[[BrokerAddress], Awaitable[CheckedTarget]]
_FAILURE_NAMES: Final[dict[type[Exception], str]] = {
    BrokerUnavailable: "unreachable",
    BrokerUnreachable: "unreachable",
    BrokerNotReady: "refused",
    NoSocket: "no_socket",
    ConnectionClosed: "closed",
    CredentialsUnavailable: "no_credentials",
    RequestFailed: "refused",
    TargetRefused: "not_allowed",
    TargetUnknown: "not_allowed",
}
# For so long a connection that nobody has asked yet is kept for those who were told of it.
GRACE_SECONDS: Final = 1.0
# Ends of a connection that has answered nothing which count as a failure to open it: the broker has closed it, broken
# a protocol or fallen silent. The proxy's own ends say nothing about the broker.
ENDED_BY_BROKER: Final = {
    DisconnectCause.BROKER_CLOSED,
    DisconnectCause.BROKER_SILENT,
    DisconnectCause.CONNECTION_RESET,
    DisconnectCause.FRAME_TOO_LARGE,
    DisconnectCause.KEEP_ALIVE_TIMEOUT,
    DisconnectCause.MALFORMED_FRAME,
    DisconnectCause.SECOND_CONNECTED,
    DisconnectCause.TLS_ERROR,
    DisconnectCause.TRUNCATED,
}
OPENING_FAILURES: Final = tuple(_FAILURE_NAMES)


class BrokerPool:
    """Pool of request connections: at most `per_key` for each key and `total` in all, opened on demand.

    A key has one connection opened at a time, and its second only where a place is free.
    """

    def __init__(
        self,
        core: Core,
        sockets: Sockets,
        dialer: Dialer,
        check: Check,
        connect_frames: ConnectFrames,
        brokers: Brokers,
    ) -> None:
        counters = core.counters
        self._loop = core.loop
        self._connect_frames = connect_frames
        self._dialer = dialer
        self._check = check
        self._of_connections = (core.loop, sockets.shared, sockets.hangup, core.loop_budget)
        # Tasks whose question has failed, or that may look for a connection again.
        self._turns = TaskTurns(core.loop_budget, self._crashed)
        self._counters = counters
        counters.show(CONNECTIONS, self.states)
        self._log = core.log.of("brokers")
        self._pace = LinePace()
        self._limits = PoolLimits.of(core.config)
        self._brokers = brokers
        self._scope = TaskScope(self._crashed)
        self._reports = Reports(counters, self._changed, self._answered, self._lost, self._challenged, self._fail)
        self._connections: dict[PoolKey, list[BrokerConnection]] = {}
        self._keys: dict[BrokerConnection, PoolKey] = {}
        self._opening: set[PoolKey] = set()
        # Connections without a question, the longest idle first; who is asked leaves when somebody looks. A connection
        # that waiters were woken for joins when they have asked, or after GRACE_SECONDS.
        self._idle: dict[BrokerConnection, None] = {}
        self._waiters: dict[PoolKey, set[asyncio.Future[None]]] = {}
        # Keys of connections that ended before any answer, till the next tick. The first end is forgiven (None), since
        # brokers restart. After a later one that nobody had asked, a dial fails with it, for who was told of it.
        self._unanswered: dict[PoolKey, ConnectionClosed | None] = {}
        # Keys that wait for a place.
        self._line: dict[PoolKey, None] = {}
        # Failures of questions that one look at the clocks brings; None between the looks.
        self._failing: list[Callable[[], None]] | None = None
        # The end of a connection that is closed for the first in line must not serve the next on the same stack.
        self._serving = False

    @property
    def size(self) -> int:
        """Count the connections that are open or being opened."""
        return len(self._keys) + len(self._opening)

    @property
    def outstanding(self) -> int:
        """Count the questions that brokers have not answered."""
        return sum(connection.outstanding for connection in self._keys)

    @property
    def waiting(self) -> int:
        """Count those who wait for a connection."""
        return sum(map(len, self._waiters.values()))

    def states(self) -> dict[str, int]:
        """Count the connections by what they are doing, for the metrics."""
        paused = sum(connection.paused for connection in self._keys)
        idle = sum(connection.at_rest for connection in self._keys)
        asked = len(self._keys) - paused - idle
        return {"connecting": len(self._opening), "idle": idle, "asked": asked, "paused": paused}

    def has_open(self, broker: BrokerAddress) -> bool:
        """Return whether a connection to a broker is open."""
        return any(key.broker == broker and connection.open for connection, key in self._keys.items())

    def apply(self, limits: PoolLimits) -> None:
        """Change the limits; surplus connections get no new question and are closed when they have none left."""
        self._limits = limits
        if limits.small_receive_bytes:
            # After a smaller total more than its part would keep the large buffer, for as long as they are asked.
            for connection in islice(self._keys, limits.total // LARGE_BUFFERS_OF, None):
                _narrow(connection, limits.small_receive_bytes)
        for key in self._waiters:
            self._stand_in_line(key)
        self._close_surplus()

    async def connection(self, key: PoolKey) -> BrokerConnection:
        """Return a connection that takes a question now; the caller must ask before the next await.

        Raises BrokerUnavailable, ConnectionClosed, CredentialsUnavailable, RequestFailed or TargetRefused if opening
        one failed.
        """
        while True:
            found = self.try_connection(key)
            if found is not None:
                return found
            change = self.change(key)
            try:
                await change
            finally:
                self.forget(key, change)

    def try_connection(self, key: PoolKey) -> BrokerConnection | None:
        """Return a connection that takes a question now; None if there is none: one is opened if that is allowed."""
        usable = [found for found in islice(self._connections.get(key, ()), self._limits.per_key) if found.usable]
        found = min(usable, key=attrgetter("outstanding"), default=None)
        if found is None:
            if self._may_open(key):
                self._line[key] = None
                self._serve_line()
        elif found.outstanding and self.size < self._limits.total and self._may_open(key):
            self._start_opening(key)
        return found

    def change(self, key: PoolKey) -> asyncio.Future[None]:
        """Return a future that is done when there may be a connection; fails as `connection` does.

        The caller calls `forget` when the future is done, or when nobody waits for it any more.
        """
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.setdefault(key, set()).add(waiter)
        return waiter

    def forget(self, key: PoolKey, waiter: asyncio.Future[None]) -> None:
        """Forget a future of `change`."""
        waiters = self._waiters.get(key)
        if waiters is not None:
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[key]
                self._line.pop(key, None)

    def tick(self, now: float) -> None:
        """Check the clocks of every connection."""
        self._unanswered.clear()
        failing = self._failing = []
        for connection in list(self._keys):
            try:
                connection.tick(now, self._limits.clocks)
                if connection not in self._idle and connection.at_rest and now - connection.last_used > GRACE_SECONDS:
                    self._idle[connection] = None
            except Exception as error:
                connection.crashed(error)
        self._failing = None
        # A single call for all connections: the first few of each call go on without a wait.
        self._turns.add(failing)
        self._close_surplus()

    async def close(self) -> None:
        """Close every connection."""
        self._serving = True
        self._scope.cancel()
        for connection in list(self._keys):
            connection.abort(DisconnectCause.SHUTDOWN)
        self._turns.finish()
        await self._scope.emptied()
        self._turns.finish()

    # --- reports of connections -------------------------------------------------------------------

    def _changed(self, connection: BrokerConnection) -> None:
        """Wake the waiters for a connection, or use the place of an idle one."""
        key = self._keys.get(connection)
        if key is None:
            # The connection is still being opened: `_open` wakes the waiters.
            return
        if connection.usable and not self._wake(key) and not connection.outstanding:
            self._idle.pop(connection, None)
            self._idle[connection] = None
            self._serve_line()

    def _lost(self, connection: BrokerConnection, cause: DisconnectCause) -> None:
        """Forget the connection."""
        self._counters.disconnected(cause)
        key = self._keys.pop(connection, None)
        if key is None:
            return
        self._idle.pop(connection, None)
        self._part(connection, key)
        if not connection.answered and cause in ENDED_BY_BROKER:
            error = _ended(key, connection)
            if key not in self._unanswered:
                self._unanswered[key] = None
            elif connection.unasked and key not in self._waiters:
                self._unanswered[key] = error
            else:
                self._note_failure(key, error)
                self._wake(key, error)
        self._serve_line()

    def _answered(self, connection: BrokerConnection) -> None:
        """Report a broker that answers requests: one may answer CONNECT and close at once, again and again."""
        self._brokers.worked(self._keys[connection].broker)

    def _fail(self, questions: Iterable[BrokerRequest], error: Exception) -> None:
        """Fail questions in turns, each with an error of its own: their tasks ask again, some 0.1 ms each."""
        failing = [partial(_fail_one, question, error) for question in questions]
        if self._failing is None:
            self._turns.add(failing)
        else:
            self._failing += failing

    def _challenged(self, connection: BrokerConnection, challenge: pb.CommandAuthChallenge) -> None:
        """Answer a broker that wants credentials."""
        self._scope.start(self._respond(connection, challenge))

    def _crashed(self, error: BaseException) -> None:
        self._counters.internal_error(error, "broker pool")

    # --- decisions --------------------------------------------------------------------------------

    def _may_open(self, key: PoolKey) -> bool:
        return key not in self._opening and len(self._connections.get(key, ())) < self._limits.per_key

    def _start_opening(self, key: PoolKey) -> None:
        self._line.pop(key, None)
        self._opening.add(key)
        self._scope.start(self._open(key))

    def _stand_in_line(self, key: PoolKey) -> None:
        """Put a key with waiters into the line, if it may open a connection: last, or where it stands already."""
        if key in self._waiters and self._may_open(key):
            self._line[key] = None

    def _serve_line(self) -> None:
        """Use places that are free, and those of idle connections, for the first in line."""
        if self._serving:
            return
        self._serving = True
        try:
            while self._line and (self.size < self._limits.total or self._close_an_idle_one()):
                self._start_opening(next(iter(self._line)))
        finally:
            self._serving = False

    def _close_an_idle_one(self) -> bool:
        while self._idle:
            connection = next(iter(self._idle))
            del self._idle[connection]
            if connection.at_rest:
                connection.close(DisconnectCause.IDLE)
                return True
        return False

    def _close_surplus(self) -> None:
        """Close the connections above a lowered limit, once they have no question left; use the places of others."""
        for connections in list(self._connections.values()):
            for connection in connections[self._limits.per_key :]:
                if not connection.outstanding:
                    connection.close(DisconnectCause.IDLE)
        # Connections being closed are counted until they are gone: do not close more in their place.
        surplus = sum(connection.open for connection in self._keys) - self._limits.total
        while surplus > 0 and self._close_an_idle_one():
            surplus -= 1
        self._serve_line()

    def _part(self, connection: BrokerConnection, key: PoolKey) -> None:
        remaining = self._connections[key]
        remaining.remove(connection)
        if not remaining:
            del self._connections[key]
        self._stand_in_line(key)

    # --- waiting and opening ----------------------------------------------------------------------

    def _wake(self, key: PoolKey, error: Exception | None = None) -> bool:
        """Make those who wait for a key look again, or fail; return whether there were any."""
        waiters = self._waiters.pop(key, None)
        if waiters is None:
            return False
        self._line.pop(key, None)
        self._turns.add([partial(_end_wait, waiter, error) for waiter in waiters])
        return True

    async def _open(self, key: PoolKey) -> None:
        try:
            await self._dial(key)
        except OPENING_FAILURES as error:
            self._note_failure(key, error)
            self._opened(key, error)
        except BaseException:
            self._opened(key, BrokerUnavailable(f"opening a connection to broker {key.broker} was given up"))
            raise
        else:
            self._opened(key)

    def _opened(self, key: PoolKey, error: Exception | None = None) -> None:
        self._opening.discard(key)
        if error is None or key not in self._connections:
            self._wake(key, error)
            self._serve_line()
        else:
            self._serve_line()
            # Not served now: its clients would dial in a loop.
            self._stand_in_line(key)

    async def _dial(self, key: PoolKey) -> None:
        if (ended := self._unanswered.get(key)) is not None:
            self._unanswered[key] = None
            raise ended
        checked = await self._check(key.broker)
        connect_frame = await self._connect_frames.for_requests(key.principal)
        # Who may have the large buffer counts in `size` until it ends, so there are never more than this part.
        large = self.size <= self._limits.total // LARGE_BUFFERS_OF
        connection = await self._dialer.connect(checked, partial(self._new_connection, connect_frame))
        if not large and self._limits.small_receive_bytes:
            _narrow(connection, self._limits.small_receive_bytes)
        try:
            async with asyncio.timeout(self._dialer.timeout_seconds):
                await connection.ready
        except TimeoutError:
            connection.abort(DisconnectCause.BROKER_SILENT)
            seconds = f"{self._dialer.timeout_seconds:g} s"
            raise BrokerUnavailable(
                f"broker {key.broker} did not answer CONNECT within {seconds} (brokerProxyConnectTimeoutMs)"
            ) from None
        except RequestFailed as error:
            if error.code != ServerError.ServiceNotReady:
                raise
            raise BrokerNotReady(error.message) from error
        except BaseException:
            connection.abort(DisconnectCause.SHUTDOWN)
            raise
        if not connection.open:
            raise _ended(key, connection)
        self._connections.setdefault(key, []).append(connection)
        self._keys[connection] = key

    def _note_failure(self, key: PoolKey, error: Exception) -> None:
        self._counters[OPEN_FAILURES][_FAILURE_NAMES[type(error)]] += 1
        if isinstance(error, RequestFailed) and self._connect_frames.refused(key.broker, error, key.principal):
            return
        # A broker has no part in credentials that it refuses or that the proxy lacks, nor in a lack of sockets.
        faultless = RequestFailed | CredentialsUnavailable | NoSocket
        if not isinstance(error, faultless) and not self.has_open(key.broker):
            answers_tcp = not isinstance(error, BrokerUnreachable | TargetRefused)
            self._brokers.failed(key.broker, str(error), answers_tcp=answers_tcp)
        # Paced: every request of every client reaches this line while a broker is down.
        if self._pace.due(self._loop.time()):
            self._log.warning("broker cannot be reached", broker=str(key.broker), detail=str(error))

    def _new_connection(self, connect_frame: bytes) -> BrokerConnection:
        return BrokerConnection(*self._of_connections, self._reports, connect_frame)

    # --- challenges -------------------------------------------------------------------------------

    async def _respond(self, connection: BrokerConnection, challenge: pb.CommandAuthChallenge) -> None:
        """Answer a challenge, or end the connection: its credentials have expired."""
        key = self._keys.get(connection)
        try:
            async with asyncio.timeout(self._limits.challenge_seconds):
                # A broker that has not read the last answer gets no other answer.
                await connection.drained()
                if key is None:
                    connection.respond(await self._connect_frames.answer())
                    return
                frame, principal = await self._connect_frames.renewed(challenge, key.principal)
        except ConnectionClosed:
            return
        except (AuthenticationFailed, TimeoutError) as error:
            self._in_vain(connection, str(error) or "no client renewed its credentials in time")
            connection.give_up(error, DisconnectCause.CREDENTIALS_NOT_RENEWED)
            return
        except (CredentialsUnavailable, RequestFailed) as error:
            self._in_vain(connection, str(error))
            connection.give_up(error, DisconnectCause.NO_BROKER_CREDENTIALS)
            return
        if connection in self._keys:
            connection.respond(frame)
            self._move(connection, key._replace(principal=principal))

    def _in_vain(self, connection: BrokerConnection, reason: str) -> None:
        if connection.open and self._pace.due(self._loop.time(), "challenge"):
            self._log.warning("a broker asked for credentials in vain", reason=reason)

    def _move(self, connection: BrokerConnection, key: PoolKey) -> None:
        """Move a connection to the principal whose credentials it has from now on: nobody else may share it."""
        former = self._keys[connection]
        if former == key:
            return
        self._part(connection, former)
        self._connections.setdefault(key, []).append(connection)
        self._keys[connection] = key
        self._wake(key)
        self._serve_line()


def _narrow(connection: BrokerConnection, size: int) -> None:
    # A connection that has ended meanwhile needs no bound.
    if (own := connection.own_socket()) is not None:
        with suppress(OSError):
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def _end_wait(waiter: asyncio.Future[None], error: Exception | None) -> None:
    if waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(own_copy(error))


def _ended(key: PoolKey, connection: BrokerConnection) -> ConnectionClosed:
    text = f"a connection to broker {key.broker} ended before any answer"
    return connection.closed(connection.cause or DisconnectCause.BROKER_CLOSED, text)


def _fail_one(question: BrokerRequest, error: Exception) -> None:
    question.failed(own_copy(error))
