"""Own a proxy's clients over transports in memory, in turns of the loop whose clock is set by hand.

Clients are real; who serves the lists only notes whom it served.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from limiter.semaphore import AsyncSemaphore
from protocol import commands
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.fairness_key import DisplayNames
from proxy.brokers.sockets import Sockets
from proxy.brokers.target import BrokerAddress
from proxy.clients.connection import ClientConnection
from proxy.clients.requests import RequestServices
from proxy.clients.services import ClientLimits, ClientServices
from proxy.config.core import Core
from proxy.core.counters import Counters
from proxy.core.errors import DisconnectCause
from proxy.core.log import open_log
from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.send_buffers import SendSettings
from proxy.net.transport import SharedReadBuffer
from proxy.requests.lookups import LookupService
from proxy.requests.request_bytes import RequestBytes
from proxy.requests.topic_lists.memory import ListMemory
from proxy.requests.topic_lists.service import ListRequest
from proxy.telemetry.events.reports import Reports
from tests.support.brokers.one_broker import OneBroker, side_of
from tests.support.clients.async_client import connect_frame
from tests.support.clients.list_clients import commands_in, turns
from tests.support.configured import configured
from tests.support.proxies.counted import counted_by
from tests.support.sockets.endpoints import hangup_watcher
from tests.support.sockets.memory_transport import MemoryTransport

LIMITS = ClientLimits(
    max_frame_bytes=1 << 20,
    max_answer_bytes=1 << 20,
    max_outstanding=100,
    unanswered_per_second=1000,
    frame_seconds=30.0,
    keep_alive=True,
)
BROKER = BrokerAddress("broker", 6650)
LOOKUP_SECONDS = 60.0
NO_LIMITS = {
    "maxTopicListInFlightHeapMemSizeMB": 0,
    "maxTopicListInFlightDirectMemSizeMB": 0,
    "topicListFairness": "fifo",
}


class Lists:
    """Answer each list request with an error about its id, and note the id; stands in for the TopicListService.

    With a `gate` answers wait until it is open.
    """

    def __init__(self) -> None:
        self.served: list[int] = []
        self.arrivals: list[float] = []
        self.gate: asyncio.Event | None = None
        self.queues = SimpleNamespace(limits=SimpleNamespace(request_timeout_seconds=28.0))

    async def serve(self, asked: ListRequest) -> None:
        asked.begun = True
        self.served.append(asked.request.request_id)
        self.arrivals.append(asked.arrived)
        if self.gate is not None:
            await self.gate.wait()
        asked.client.output.send(commands.error(asked.request.request_id, ServerError.UnknownError, "no list"))


class Registry:
    """Note the ends of connections."""

    logs_connections = False

    def __init__(self) -> None:
        self.ends: list[DisconnectCause] = []

    def credentials_came(self, session: ClientConnection) -> None:
        """Nothing here counts clients whose credentials are checked."""

    def handshake_done(self, session: ClientConnection) -> None:
        pass

    def ended(self, session: ClientConnection, cause: DisconnectCause) -> None:
        self.ends.append(cause)


class Visitor:
    """A client in lookup mode, and what it was sent since."""

    def __init__(self, services: ClientServices, room: int, address: str) -> None:
        self.session = ClientConnection(services, address)
        self.socket = MemoryTransport(services.loop, room)
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

    def __init__(self, hangup: HangupWatcher, command_bytes: int = 0, **limits: Any) -> None:
        loop = asyncio.get_running_loop()
        self.now = 100.0
        self.lists, self.registry, self.counters = Lists(), Registry(), Counters()
        self.loop_budget = LoopBudget(loop, lambda: self.now)
        self.slots = AsyncSemaphore("lookups", 1000, max_queue=0, timeout_seconds=1.0, clock=loop)
        self.command_bytes = RequestBytes(loop, command_bytes, self.loop_budget) if command_bytes else None
        core = Core(loop, configured(**NO_LIMITS), self.counters, open_log("error"), self.loop_budget)
        reports, side = Reports(core, DisplayNames()), side_of(OneBroker(BROKER))
        self.refusals = reports.refusals
        self.services = ClientServices(
            core,
            cast(Sockets, SimpleNamespace(shared=SharedReadBuffer(), hangup=hangup)),
            ListMemory(core),
            cast(Any, self.registry),
            RequestServices(
                core,
                LookupService(core, side, self.slots, self.command_bytes),
                cast(Any, self.lists),
                cast(Any, None),
                reports,
            ),
            cast(Any, None),
        )
        self.services.limits = replace(LIMITS, **limits)
        self.services.requests.lookups.apply(self.slots.limit, LOOKUP_SECONDS)
        self.services.send_buffers.apply(SendSettings(0, None))
        self.visitors: list[Visitor] = []

    def visitor(self, room: int = 1 << 40, address: str = "192.0.2.1") -> Visitor:
        """Let a client in that takes `room` bytes."""
        self.visitors.append(Visitor(self.services, room, address))
        return self.visitors[-1]

    def work_long_enough(self) -> None:
        """Have this turn work until it has had enough."""
        self.loop_budget.spent()
        self.now += 2 * ITERATION_SECONDS
        assert self.loop_budget.spent()


@asynccontextmanager
async def desk(**limits: Any) -> AsyncIterator[Desk]:
    """Give a desk; at its end nothing is under way and nobody has crashed."""
    async with hangup_watcher() as hangup:
        on = Desk(hangup, **limits)
        yield on
        for visitor in on.visitors:
            visitor.session.abort(DisconnectCause.SHUTDOWN)
        on.services.requests.leaving.finish()
        await turns()
        places = on.services.requests.lookups.list_places
        assert (len(on.loop_budget), on.slots.held, len(hangup)) == (0, 0, 0)
        assert (places.held, places.queue_size, places.waiting) == (0, 0, 0)
        assert on.command_bytes is None or (len(on.command_bytes), on.command_bytes.record().used_bytes) == (0, 0)
        assert len(on.registry.ends) == len(on.visitors)
        assert counted_by(on.counters, "internal_errors") == {}
