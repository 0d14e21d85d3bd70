"""A burst of topic-list requests is put off when its turn has worked for long enough; a PING never is.

Clients are real, over transports in memory; who serves the lists only notes whom it served.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from limiter.semaphore import AsyncSemaphore
from protocol import commands
from protocol.commands import PONG_FRAME
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.app.metrics.counters import Counters
from proxy.auth.fairness_key import FairnessKeys
from proxy.brokers.target import BrokerAddress
from proxy.clients.connection import ClientConnection
from proxy.clients.requests import RequestServices
from proxy.clients.services import ClientLimits, ClientServices
from proxy.core.errors import DisconnectCause
from proxy.core.log import open_log
from proxy.core.loop_budget import DEFERRED_PER_ITERATION, ITERATION_SECONDS, LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.send_buffers import SendBuffers
from proxy.net.transport import SharedReadBuffer
from proxy.net.write_watch import WriteLimits, WriteWatch
from proxy.requests.lookups import LookupService
from proxy.requests.topic_lists.service import ListRequest
from proxy.telemetry.refusals import RefusalLog
from tests.support.brokers.one_broker import OneBroker
from tests.support.clients.async_client import PING, connect_frame, topics_frame
from tests.support.clients.list_clients import commands_in, turns
from tests.support.sockets.endpoints import hangup_watcher
from tests.support.sockets.memory_transport import MemoryTransport

LIMITS = ClientLimits(
    max_frame_bytes=1 << 20,
    max_message_bytes=1 << 20,
    max_outstanding=100,
    send_buffer_bytes=0,
    frame_seconds=30.0,
    keep_alive=True,
)
BROKER = BrokerAddress("broker", 6650)


class Lists:
    """Answer each list request with an error about its id, and note the id; stands in for the TopicListService."""

    def __init__(self) -> None:
        self.served: list[int] = []

    async def serve(self, asked: ListRequest) -> None:
        asked.begun = True
        self.served.append(asked.request.request_id)
        asked.client.output.send(commands.error(asked.request.request_id, ServerError.UnknownError, "no list"))


class Registry:
    """Note the ends of connections (`proxy.clients.services.SessionRegistry`)."""

    def __init__(self) -> None:
        self.ends: list[DisconnectCause] = []

    def handshake_done(self, session: ClientConnection) -> None:
        pass

    def ended(self, session: ClientConnection, cause: DisconnectCause) -> None:
        self.ends.append(cause)


class Visitor:
    """A client in lookup mode, and what it was sent since."""

    def __init__(self, services: ClientServices) -> None:
        self.session = ClientConnection(services, "192.0.2.1")
        self.socket = MemoryTransport(services.loop)
        self.socket.connect(self.session)
        self.arrives(connect_frame())
        self.answers()

    def arrives(self, data: bytes) -> None:
        """Let `data` be read at once."""
        place = self.session.get_buffer(-1)
        place[: len(data)] = data
        self.session.buffer_updated(len(data))

    def answers(self) -> list[pb.BaseCommand]:
        found, end = commands_in(bytes(self.socket.peer_bytes))
        del self.socket.peer_bytes[:end]
        return found

    def answered(self) -> list[int | str]:
        """Give the ids of the answered requests, and the PONGs between them."""
        pong = pb.BaseCommand.PONG
        return ["pong" if answer.type == pong else answer.error.request_id for answer in self.answers()]


class Desk:
    """A proxy's clients, and turns whose clock is set by hand."""

    def __init__(self, hangup: HangupWatcher) -> None:
        loop = asyncio.get_running_loop()
        self.now = 100.0
        self.lists, self.registry, self.counters = Lists(), Registry(), Counters()
        self.refusals = RefusalLog(open_log("error"), loop)
        self.loop_budget = LoopBudget(loop, lambda: self.now)
        self.slots = AsyncSemaphore("lookups", 1000, max_queue=0, timeout_seconds=1.0, clock=loop)
        direct = AsyncSemaphore("direct", 0, max_queue=0, timeout_seconds=1.0, clock=loop)
        brokers = OneBroker(BROKER)
        lookups = LookupService(loop, cast(Any, None), brokers, self.slots, self.counters.requests, 1.0)
        self.services = ClientServices(
            loop=loop,
            shared=SharedReadBuffer(),
            hangup=hangup,
            counters=self.counters.clients,
            limits=LIMITS,
            direct=direct,
            requests=RequestServices(
                loop,
                self.counters.requests,
                lookups,
                cast(Any, self.lists),
                self.loop_budget,
                schemas=cast(Any, None),
                refusals=self.refusals,
            ),
            direct_mode=cast(Any, None),
            sessions=cast(Any, self.registry),
            server_version="test",
            writes=WriteWatch(direct, direct, lambda: 0, self.counters.net, WriteLimits(20.0, 32768), open_log()),
            loop_budget=self.loop_budget,
            fairness_keys=FairnessKeys("fifo"),
            send_buffers=SendBuffers(self.counters.net),
        )
        self.visitors: list[Visitor] = []

    def visitor(self) -> Visitor:
        self.visitors.append(Visitor(self.services))
        return self.visitors[-1]

    def work_long_enough(self) -> None:
        """Have this turn work until it has had enough."""
        self.loop_budget.spent()
        self.now += 2 * ITERATION_SECONDS
        assert self.loop_budget.spent()


@asynccontextmanager
async def desk() -> AsyncIterator[Desk]:
    """Give a desk; at its end nothing is under way and nobody has crashed."""
    async with hangup_watcher() as hangup:
        on = Desk(hangup)
        yield on
        for visitor in on.visitors:
            visitor.session.abort(DisconnectCause.SHUTDOWN)
        await turns()
        assert (len(on.loop_budget), on.slots.held, len(hangup)) == (0, 0, 0)
        assert len(on.registry.ends) == len(on.visitors)
        assert on.counters.shared.internal_errors == {}


def list_request(number: int) -> bytes:
    return topics_frame(number, "t/n")


async def test_a_burst_of_lists_is_put_off_while_pings_of_the_same_turn_are_answered() -> None:
    async with desk() as on:
        askers = [on.visitor() for _ in range(3 * DEFERRED_PER_ITERATION)]
        pinging = on.visitor()
        askers[0].arrives(list_request(0))
        assert len(on.loop_budget) == 0
        on.work_long_enough()
        for number, asker in enumerate(askers[1:], 1):
            asker.arrives(list_request(number))
        pinging.arrives(PING)
        assert pinging.answered() == ["pong"]
        assert len(on.loop_budget) == len(askers) - 1
        await turns(1)
        pinging.arrives(PING)
        assert pinging.answered() == ["pong"]
        assert len(on.loop_budget) == len(askers) - 1 - DEFERRED_PER_ITERATION
        await turns(10)
        assert on.lists.served == list(range(len(askers)))
        assert [asker.answered() for asker in askers] == [[number] for number in range(len(askers))]


async def test_a_turn_that_has_time_puts_nothing_off() -> None:
    async with desk() as on:
        askers = [on.visitor() for _ in range(3)]
        for number, asker in enumerate(askers):
            asker.arrives(list_request(number))
        assert len(on.loop_budget) == 0
        await turns()
        assert on.lists.served == [0, 1, 2]


async def test_what_follows_a_list_that_is_put_off_waits_behind_it() -> None:
    async with desk() as on:
        asker = on.visitor()
        on.work_long_enough()
        asker.arrives(list_request(1))
        reading = [asker.session.reading]
        asker.arrives(PING)
        reading.append(asker.session.reading)
        assert (asker.answered(), reading) == ([], [True, False])
        # uvloop may deliver once more after it was told to pause.
        asker.arrives(list_request(2))
        assert (asker.answered(), on.lists.served) == ([], [])
        await turns()
        assert (asker.answered(), on.lists.served) == (["pong", 1, 2], [1, 2])
        assert asker.session.reading


async def test_lists_in_one_read_are_put_off_together_and_served_once() -> None:
    async with desk() as on:
        asker = on.visitor()
        on.work_long_enough()
        asker.arrives(list_request(1) + list_request(2) + PING)
        assert len(on.loop_budget) == 1
        await turns()
        assert (on.lists.served, sorted(map(str, asker.answered()))) == ([1, 2], ["1", "2", "pong"])


@pytest.mark.parametrize("cut", [5, 10, 15])
async def test_a_list_that_arrives_in_two_pieces_is_served_once(cut: int) -> None:
    async with desk() as on:
        asker = on.visitor()
        on.work_long_enough()
        whole = list_request(1)
        asker.arrives(whole[:cut])
        asker.arrives(whole[cut:])
        await turns()
        assert (on.lists.served, asker.answered()) == ([1], [1])
        assert asker.session.reading


@pytest.mark.parametrize("reads", [1, 2])
async def test_a_client_that_leaves_while_put_off_is_served_nothing(reads: int) -> None:
    async with desk() as on:
        leaving, staying = on.visitor(), on.visitor()
        on.work_long_enough()
        for number in range(reads):
            leaving.arrives(list_request(number))
        staying.arrives(list_request(9))
        leaving.session.abort(DisconnectCause.CLIENT_CLOSED)
        await turns()
        assert on.lists.served == [9]
        assert (leaving.answered(), staying.answered()) == ([], [9])
        assert on.counters.shared.internal_errors == {}


async def test_a_client_whose_reading_is_paused_hangs_up_while_put_off() -> None:
    async with desk() as on:
        leaving = on.visitor()
        on.work_long_enough()
        leaving.arrives(list_request(1))
        leaving.arrives(list_request(2))
        leaving.session.eof_received()
        await turns()
        assert on.lists.served == []
        assert on.registry.ends == [DisconnectCause.CLIENT_CLOSED]


async def test_a_ping_before_a_list_in_one_read_is_answered_at_once() -> None:
    async with desk() as on:
        asker = on.visitor()
        on.work_long_enough()
        asker.arrives(PING + list_request(1))
        assert bytes(asker.socket.peer_bytes).startswith(PONG_FRAME)
        await turns()
        assert asker.answered() == ["pong", 1]
