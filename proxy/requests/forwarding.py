"""Forward one small request: a record with callbacks, which waits for its turn and its answer without a task.

Thousands of lookups wait while a broker is slow. As tasks each would keep thirty objects that the garbage collector
walks through again and again; a record is one, beside its place among the lookups. A record is the request of a client
and, one after another, each question to a broker. The request ends with its answer, its clock or its client; its
question lasts until the broker has answered or is gone, and keeps its turn and the place among the lookups till then.

The end of a wait only marks a record as ready (`ReadyRequests`): the record goes on in the next iteration of the loop.
So no error of a request reaches the connection that brought an answer, and no answer the code that asked.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from limiter.errors import PermitAcquireError
from limiter.fair_line import Entry
from limiter.permit import Permit
from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers.connection import BrokerConnection
from proxy.brokers.discovery import Brokers
from proxy.brokers.pool import BrokerPool, PoolKey, Purpose
from proxy.brokers.request import SmallRequest
from proxy.brokers.target import BrokerAddress
from proxy.core.counters import Counters, counter_by
from proxy.core.errors import FAIL_OVER, ConnectionClosed, ProxyError, RequestFailed, request_failure
from proxy.core.tasks import CoarseDeadlines, TaskScope, call_each
from proxy.net.output import Output
from proxy.requests.broker_turns import BrokerTurns, Turn
from proxy.requests.client import Client
from proxy.requests.places import Slot

# An iteration lets so many requests go on, some 30 us each: what makes them ready charges the loop's budget for them.
READY_A_TURN: Final = 64
FAILED: Final = counter_by("kind", "failed_requests", "Requests other than topic lists that got an error.")


class RequestParts(NamedTuple):
    """The client that a request is for, its place among the lookups, and all requests of the client that wait.

    They stand there, each with the permit of its frame if that was large, until they are over.
    """

    client: Client
    slot: Slot
    waiting: "dict[ForwardedRequest, Permit | None]"


class ReadyRequests:
    """The requests that may go on, each once, and in their order.

    The frames that they write to a client, or to a broker, in one turn are joined: one system call for many.
    """

    __slots__ = ("_connections", "_loop", "_on_crash", "_outputs", "_requests", "_scheduled")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_crash: Callable[[BaseException], None]) -> None:
        self._loop = loop
        self._on_crash = on_crash
        self._requests: deque[ForwardedRequest] = deque()
        self._scheduled = False
        self._outputs: dict[Output, None] = {}
        self._connections: dict[BrokerConnection, None] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: "ForwardedRequest") -> None:
        """Add a request, which goes on in the next iteration of the loop."""
        self._requests.append(request)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def joined(self, output: Output) -> Output:
        """Return `output`, whose frames are joined until the end of this turn."""
        if output not in self._outputs:
            self._outputs[output] = None
            output.gather()
        return output

    def asked(self, connection: BrokerConnection) -> BrokerConnection:
        """Return `connection`, whose questions are written at the end of this turn."""
        self._connections[connection] = None
        return connection

    def _turn(self) -> None:
        requests = self._requests
        try:
            for _ in range(min(len(requests), READY_A_TURN)):
                requests.popleft().go_on()
        finally:
            self._scheduled = bool(requests)
            if requests:
                self._loop.call_soon(self._turn)
            outputs, self._outputs = self._outputs, {}
            connections, self._connections = self._connections, {}
            call_each((connection.write_joined for connection in connections), self._on_crash)
            for output in outputs:
                try:
                    output.send_gathered()
                except Exception as error:
                    call_each((partial(output.crashed, error),), self._on_crash)


class Forwarder:
    """The parts that all forwarded requests share: brokers and connections to them, turns, and one clock."""

    __slots__ = ("_counters", "_picks", "brokers", "deadlines", "pool", "ready", "turns")

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: BrokerPool, brokers: Brokers, counters: Counters) -> None:
        self.pool = pool
        self.brokers = brokers
        self.turns: BrokerTurns[ForwardedRequest] = BrokerTurns(counters)
        self.ready = ReadyRequests(loop, partial(counters.internal_error, where="lookup"))
        self.deadlines: CoarseDeadlines[ForwardedRequest] = CoarseDeadlines(loop, ForwardedRequest.expired)
        self._counters = counters
        # Waits of requests for a broker while none is up: a second or two.
        self._picks = TaskScope(lambda error: counters.internal_error(error, "lookup"))

    def pick(self, request: "ForwardedRequest", avoid: BrokerAddress | None) -> Callable[[], object]:
        """Wait for a broker, and tell `request`; return what ends the wait."""
        return self._picks.start(self._picked(request, avoid))

    async def _picked(self, request: "ForwardedRequest", avoid: BrokerAddress | None) -> None:
        try:
            request.picked(await self.brokers.pick(avoid=avoid))
        except Exception as error:
            request.picked(error)

    async def close(self) -> None:
        """Cancel the waits for a broker that are still under way: no client is left."""
        self._picks.cancel()
        await self._picks.emptied()

    def failure(self, error: Exception, where: str) -> RequestFailed:
        """Count a request that failed with `error`, and return the failure for its client."""
        self._counters[FAILED][where] += 1
        if not isinstance(error, ProxyError | PermitAcquireError | TimeoutError):
            self._counters.internal_error(error, where)
        return request_failure(error)


class ForwardedRequest(SmallRequest):
    """A request of `client`, answered with exactly one frame, unless the client is gone before."""

    __slots__ = (
        "_broker", "_client", "_connection_waiter", "_end_pick", "_failed_over", "_first_broker", "_forwarder",
        "_in_line", "_is_ready", "_outcome", "_principal", "_slot", "_step", "_turn", "_waiting",
    )  # fmt: skip

    # The name of such requests in counters and logs.
    kind = ""

    def __init__(self, expected: CommandType, forwarder: Forwarder, parts: RequestParts) -> None:
        super().__init__(expected)
        self.under_way = False
        self._forwarder = forwarder
        # None once the request is over.
        self._client: Client | None = parts.client
        self._waiting = parts.waiting
        self._principal = parts.client.principal
        self._slot = parts.slot
        # The reason for which the request is ready; None: it begins, its turn has come, or there may be a connection.
        self._outcome: pb.BaseCommand | Exception | None = None
        self._is_ready = False
        # The broker to ask; None while one is being chosen.
        self._broker: BrokerAddress | None = None
        self._first_broker: BrokerAddress | None = None
        self._failed_over = False
        # The request's turn at its broker.
        self._turn: Turn | None = None
        # The wait under way, at most one of these.
        self._in_line: Entry[ForwardedRequest] | None = None
        self._connection_waiter: asyncio.Future[None] | None = None
        self._end_pick: Callable[[], object] | None = None
        self._step = 0

    def begin(self, deadline: float) -> None:
        """Begin in the next iteration of the loop; the client gets a failure if there is no answer by `deadline`."""
        self._step = self._forwarder.deadlines.add(self, deadline)
        self._make_ready(None)

    def cancel(self) -> None:
        """End the request without an answer: its client is gone."""
        if self._client is not None:
            self._leave(self._client)

    # --- for subclasses ----------------------------------------------------------------------------

    def check(self) -> None:
        """Raise RequestFailed for a request that no broker must get."""

    def question(self, request_id: int) -> bytes:
        """Return the frame for the broker; raise what the client's request fails with."""
        raise NotImplementedError

    def answer(self, found: pb.BaseCommand) -> bytes | None:
        """Return the client's answer, made of the broker's; None after `ask` for another question."""
        raise NotImplementedError

    def refusal(self, failure: RequestFailed) -> bytes:
        """Return the answer of a request that has failed."""
        raise NotImplementedError

    def begins_anew(self) -> None:
        """Called before the request is asked once more, because a broker has failed."""

    def done(self) -> None:
        """Forget the client's request: the question may last."""
        raise NotImplementedError

    def ask(self, broker: BrokerAddress) -> None:
        """Ask `broker` as soon as there is a connection, and a turn."""
        self._broker = broker
        self._advance(self._forwarder)

    # --- the end of a wait -------------------------------------------------------------

    def ended(self, outcome: pb.BaseCommand | Exception) -> None:
        """Release what the question held, and let the request go on, unless it is over."""
        self._slot.release()
        self._release_turn()
        if self._client is not None:
            self._make_ready(outcome)

    def turn_came(self, turn: Turn) -> None:
        """Called when the request has its turn at its broker."""
        self._in_line = None
        self._turn = turn
        self._make_ready(None)

    def picked(self, found: BrokerAddress | Exception) -> None:
        """Called with a broker that can be asked, or with the error that says why there is none."""
        self._end_pick = None
        if isinstance(found, Exception):
            self._make_ready(found)
        else:
            self._first_broker = self._broker = found
            self._make_ready(None)

    def expired(self) -> None:
        """Called when the request's time is over."""
        if self._client is not None and self._outcome is None:
            self._end_waits()
            self._make_ready(TimeoutError())

    def _connection_changed(self, waiter: asyncio.Future[None]) -> None:
        if waiter is self._connection_waiter:
            self._forget_connection(waiter)
            self._make_ready(None if waiter.cancelled() else _own_error(waiter))

    def _make_ready(self, outcome: pb.BaseCommand | Exception | None) -> None:
        self._outcome = outcome
        if not self._is_ready:
            self._is_ready = True
            self._forwarder.ready.add(self)

    # --- going on ---------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Take the next step; called by `ReadyRequests`, and never raises."""
        self._is_ready = False
        client = self._client
        if client is None:
            return
        outcome, self._outcome = self._outcome, None
        try:
            try:
                answer = self._next(outcome)
            except Exception as error:
                answer = self._refused(error)
            if answer is not None:
                self._forwarder.ready.joined(client.output).send(answer)
        except Exception as error:
            try:
                client.crashed(error)
            finally:
                # The end of its client may have ended it.
                self.cancel()
            return
        if answer is not None:
            self._leave(client)

    def _next(self, outcome: pb.BaseCommand | Exception | None) -> bytes | None:
        if outcome is None:
            if self._broker is None:
                self.check()
                self._pick()
            else:
                self._advance(self._forwarder)
            return None
        if not isinstance(outcome, Exception):
            return self.answer(outcome)
        if isinstance(outcome, FAIL_OVER) and self._broker is not None and not self._failed_over:
            self._failed_over = True
            self.begins_anew()
            self._pick(self._first_broker)
            return None
        return self._refused(outcome)

    def _pick(self, avoid: BrokerAddress | None = None) -> None:
        """Choose a broker, and ask it."""
        self._release_turn()
        self._broker = None
        broker = self._forwarder.brokers.pick_at_once(avoid)
        if broker is None:
            self._end_pick = self._forwarder.pick(self, avoid)
        else:
            self._first_broker = broker
            self.ask(broker)

    def _advance(self, forwarder: Forwarder) -> None:
        """Ask the broker, or begin to wait for a connection or for the turn, after which this is called again."""
        broker = self._broker
        assert broker is not None
        key = PoolKey(broker, self._principal, Purpose.LOOKUPS)
        connection = forwarder.pool.try_connection(key)
        if connection is None:
            self._connection_waiter = forwarder.pool.change(key)
            self._connection_waiter.add_done_callback(self._connection_changed)
            return
        if self._turn is None:
            self._turn = forwarder.turns.try_begin(broker, self._slot.asker)
            if self._turn is None:
                self._in_line = forwarder.turns.wait(broker, self._slot.asker, self)
                return
        request_id = connection.new_request_id()
        frame = self.question(request_id)
        self._slot.share()
        self.under_way = True
        # A connection that has ended tells so by `failed`, too.
        with suppress(ConnectionClosed):
            forwarder.ready.asked(connection).ask(self, request_id, frame)

    def _refused(self, error: Exception) -> bytes:
        return self.refusal(self._forwarder.failure(error, self.kind))

    # --- the end ----------------------------------------------------------------------------------

    def _leave(self, client: Client) -> None:
        self._client = None
        self._forwarder.deadlines.remove(self, self._step)
        self._outcome = None
        self._end_waits()
        if not self.under_way:
            self._release_turn()
        self.done()
        self._slot.release()
        large = self._waiting.pop(self)
        # A question that lasts must not keep the table of all.
        del self._waiting
        if large is not None:
            large.release()
        client.outstanding -= 1
        client.fewer_requests()

    def _end_waits(self) -> None:
        if self._in_line is not None:
            assert self._broker is not None
            entry, self._in_line = self._in_line, None
            self._forwarder.turns.give_up(self._broker, self._slot.asker, entry)
        if self._connection_waiter is not None:
            waiter = self._connection_waiter
            self._forget_connection(waiter)
            waiter.cancel()
        if self._end_pick is not None:
            end, self._end_pick = self._end_pick, None
            end()

    def _forget_connection(self, waiter: asyncio.Future[None]) -> None:
        assert self._broker is not None
        self._connection_waiter = None
        self._forwarder.pool.forget(PoolKey(self._broker, self._principal, Purpose.LOOKUPS), waiter)

    def _release_turn(self) -> None:
        turn, self._turn = self._turn, None
        following = None if turn is None else self._forwarder.turns.release(turn, self._slot.asker)
        if turn is not None and following is not None:
            following.turn_came(turn)


def _own_error(waiter: asyncio.Future[None]) -> Exception | None:
    error = waiter.exception()
    assert error is None or isinstance(error, Exception)
    return error
