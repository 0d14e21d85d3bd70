"""Own the whole topic-list path on a loop stepped by hand, between clients and brokers in memory.

Everything in between is real: service, groups, questions, pool, broker connections, limiter, pump, outputs. Rule:
nothing moves but what a test moves. A broker looks at its topics at the moment a question arrives, the earliest there
is: whoever is let into that question's answer later gets an older list than it may.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

from protocol import commands
from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.credential_holders import CredentialHolders
from proxy.auth.fairness_key import DisplayNames
from proxy.auth.own.broker_credentials import Plain
from proxy.brokers.admitted_request import AdmittedRequest
from proxy.brokers.clocks import BrokerClocks
from proxy.brokers.connect_frames import ConnectFrames, Versions
from proxy.brokers.connection import BrokerConnection
from proxy.brokers.pool import BrokerPool, PoolLimits
from proxy.brokers.target import BrokerAddress, CheckedTarget
from proxy.clients.requests import ASKED
from proxy.config.config import Config
from proxy.core.counters import Counters
from proxy.core.errors import DisconnectCause
from proxy.core.log import open_log
from proxy.net.hangup import HangupWatcher
from proxy.net.pump import Pump
from proxy.net.transport import SharedReadBuffer
from proxy.requests.topic_lists.broker_queues import TopicListLimits
from proxy.requests.topic_lists.groups import ListGroup
from proxy.requests.topic_lists.memory import ListMemory, MemorySettings
from proxy.requests.topic_lists.service import ListRequest, TopicListService
from proxy.telemetry.events.identities import EventIdentities
from proxy.telemetry.events.recorder import Recorder, RecorderSettings, RequestOrigin
from proxy.telemetry.events.reports import Reports
from tests.support.brokers.one_broker import OneBroker, side_of
from tests.support.brokers.raw_broker import CONNECTED
from tests.support.clients.list_clients import ListClient, commands_in, turns
from tests.support.cores import core_of
from tests.support.proxies.events import CheckedSink
from tests.support.sockets.memory_transport import MemoryTransport

BROKER = BrokerAddress("broker", 6650)
KIB = 1024
RECORDED = RecorderSettings.of(Config.load(overrides={"brokerServiceURL": "pulsar://broker"}))
TURNS = 12


class SteppedLoop(asyncio.SelectorEventLoop):
    """Run turns when asked to; time stands still until `advance`."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def step(self, count: int = TURNS) -> None:
        self.run_until_complete(turns(count))


@dataclass(eq=False)
class Asked:
    """A question at the broker, and what its topics were when it came."""

    broker: "BrokerEnd"
    request: pb.CommandGetTopicsOfNamespace
    version: int
    unsent: bytes = b""
    begun: bool = False

    @property
    def abandoned(self) -> bool:
        """Tell whether nobody waits for the answer."""
        asked = cast("AdmittedRequest[Any] | None", self.broker.connection.question(self.request.request_id))
        return asked is None or asked.abandoned


class BrokerEnd:
    """The broker's side of one connection of the pool."""

    def __init__(self, stage: "ListStage", connection: BrokerConnection, address: BrokerAddress) -> None:
        self.connection, self.address = connection, address
        self.transport = MemoryTransport(stage.loop)
        self.transport.connect(connection)
        self.principal = ""
        self.questions: list[Asked] = []
        self._stage = stage
        self._read = 0

    @property
    def open(self) -> bool:
        return self.connection.cause is None

    def feed(self, data: bytes) -> None:
        """Let bytes arrive, as much at a time as the connection has room for."""
        while data and self.open:
            place = self.connection.get_buffer(-1)
            count = min(len(place), len(data))
            place[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]

    def take(self) -> None:
        """Note the questions that have arrived."""
        found, end = commands_in(bytes(self.transport.peer_bytes[self._read :]))
        self._read += end
        for command in found:
            if command.type == pb.BaseCommand.CONNECT:
                self.principal = command.connect.original_principal
            elif command.type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE:
                request = command.getTopicsOfNamespace
                self.questions.append(Asked(self, request, self._stage.versions.get(request.namespace, 0)))

    def lose(self) -> None:
        """Cut the connection."""
        self.connection.abort(DisconnectCause.CONNECTION_RESET)

    # --- answers ----------------------------------------------------------------------------------

    def begin(self, asked: Asked, size: int) -> None:
        """Send the first bytes of a list that says for whom it is and how old."""
        asked.begun = True
        name = f"{asked.request.namespace} {self.principal} {asked.version}"
        answer = pb.CommandGetTopicsOfNamespaceResponse(request_id=asked.request.request_id, topics=[name, "x" * size])
        asked.unsent = commands.frame(
            pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=answer)
        )
        self.go_on(asked, 64)

    def go_on(self, asked: Asked, size: int) -> None:
        """Send more of it."""
        piece, asked.unsent = asked.unsent[:size], asked.unsent[size:]
        if piece and not asked.unsent:
            self.questions.remove(asked)
        self.feed(piece)

    def fail(self, asked: Asked, code: int) -> None:
        """Answer with an error."""
        self.questions.remove(asked)
        self.feed(commands.error(asked.request.request_id, code, "the broker says so"))


class NamedFrames(ConnectFrames):
    """CONNECT names its principal, as that of a proxy with authentication does."""

    async def for_requests(self, principal: Hashable) -> bytes:
        connect = pb.CommandConnect(client_version="proxy", original_principal=str(principal))
        return commands.frame(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=connect))


class MemoryDialer:
    """Open connections to brokers in memory (`proxy.brokers.dialer.Dialer` as the pool sees it)."""

    timeout_seconds = 5.0

    def __init__(self, stage: "ListStage") -> None:
        self._stage = stage

    async def connect(self, checked: CheckedTarget, factory: Callable[[], BrokerConnection]) -> BrokerConnection:
        await asyncio.sleep(0)
        end = BrokerEnd(self._stage, factory(), checked.broker)
        self._stage.brokers.append(end)
        self._stage.loop.call_soon(end.feed, CONNECTED)
        return end.connection


@dataclass
class Sizes:
    """The limits of a stage, in bytes and seconds."""

    heap: int = 64 * KIB
    direct: int = 64 * KIB
    max_queue: int = 0
    acquire_seconds: float = 10.0
    share_by_key: bool = False
    unproven_percent: int = 100

    @property
    def limits(self) -> TopicListLimits:
        return TopicListLimits(
            request_timeout_seconds=20.0,
            max_answer_bytes=32 * KIB,
            max_outstanding_per_broker=8,
            coalescing=True,
            share_by_key=self.share_by_key,
            key_cap_percent=100,
        )


class ListStage:
    """A proxy's topic-list path, its clients and its brokers."""

    def __init__(self, sizes: Sizes | None = None, choice: OneBroker | None = None) -> None:
        self.loop = SteppedLoop()
        self.choice = choice or OneBroker(BROKER)
        self.sizes = sizes or Sizes()
        self.versions: dict[str, int] = {}
        self.brokers: list[BrokerEnd] = []
        self.clients: list[ListClient] = []
        self.reports: list[BaseException] = []
        # What all lists held, summed over the time it was held.
        self.held_byte_us = {"heap_byte_us": 0, "direct_byte_us": 0}
        self.numbers = count(1)
        self.loop.set_exception_handler(lambda _, context: self.reports.append(RuntimeError(str(context))))
        self.run(self._build())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    async def _build(self) -> None:
        loop, sizes = self.loop, self.sizes
        self.hangup = HangupWatcher(loop)
        self.counters = Counters(lambda error, where: self.reports.append(error))
        log = open_log("error", "json")
        core = core_of(counters=self.counters, log=log, loop=loop, clock=loop.time)
        memory = ListMemory(core)
        memory.apply(
            MemorySettings(
                sizes.heap,
                sizes.max_queue,
                sizes.acquire_seconds,
                sizes.direct,
                sizes.max_queue,
                sizes.acquire_seconds,
                "connection",
                True,
                100,
                sizes.unproven_percent,
            )
        )
        memory.queues.apply(sizes.limits)
        memory.sizes.initial_bytes = KIB
        self.limiter, self.queues = memory.limiter, memory.queues
        self.limiter.set_sharing(sizes.share_by_key, 100)
        self.pump, self.loop_budget, reports = Pump(loop, loop.time), core.loop_budget, Reports(core, DisplayNames())
        self.usage, self.refusals = reports.usage, reports.refusals
        clocks = BrokerClocks(keep_alive_seconds=0, answer_timeout_seconds=30, idle_seconds=3600)
        pool_limits = PoolLimits(per_key=2, total=16, clocks=clocks)
        connect_frames = NamedFrames(
            loop,
            Plain(lambda: None),
            CredentialHolders(cast(Any, None)),
            Versions("proxy", "-proxy"),
            log,
            authentication=False,
        )
        sockets: Any = SimpleNamespace(shared=SharedReadBuffer(), hangup=self.hangup)
        dialer: Any = MemoryDialer(self)
        self.pool = BrokerPool(core, sockets, dialer, self._check, connect_frames, self.choice)
        self.pool.apply(pool_limits)
        self.service = TopicListService(core, memory, side_of(self.choice, self.pool), self.pump, reports)
        self.events = CheckedSink(keep=True)
        self.recorder = Recorder(
            self.events.put,
            EventIdentities(b"salt"),
            self.limiter,
            lambda: self.queues.heap_queue_size,
            RECORDED,
            self.reports.append,
            lambda: round(loop.now * 1e9),
        )

    async def _check(self, broker: BrokerAddress) -> CheckedTarget:
        return CheckedTarget(broker, ["192.0.2.1"])

    # --- what a test does -------------------------------------------------------------------------

    def client(self, principal: object = None, **given: Any) -> ListClient:
        """Connect a client."""
        direct = self.limiter.direct
        client = ListClient(self.loop, self.hangup, direct, f"client {next(self.numbers)}", principal, **given)
        self.clients.append(client)
        return client

    def ask(
        self, client: ListClient, namespace: str = "t/n", *, logged: bool = True, pattern: str | None = None
    ) -> int:
        """Let a request arrive and give its id; `logged`: the proxy has an event log."""
        request = pb.CommandGetTopicsOfNamespace(
            request_id=next(self.numbers), namespace=namespace, topics_pattern=pattern
        )

        self.counters[ASKED[CommandType.GET_TOPICS_OF_NAMESPACE]].value += 1
        origin = RequestOrigin(client.principal, client.name, client.client_version)
        record = self.recorder.request(origin) if logged else None
        asked = ListRequest(client, request, self.loop.time(), record)

        async def start() -> None:
            client.start(self.service.serve(asked), ended)

        def ended() -> None:
            if not asked.begun:
                self.service.cancelled(asked)

        self.run(start())
        return request.request_id

    def step(self, count: int = TURNS) -> None:
        """Let turns pass, and brokers see what was written to them."""
        for _ in range(count):
            self.loop.step(1)
            for broker in self.brokers:
                broker.take()

    def call(self, function: Callable[..., Any], *given: Any) -> Any:
        """Call something that expects the loop to run."""

        async def called() -> Any:
            return function(*given)

        return self.run(called())

    def advance(self, seconds: float) -> None:
        """Let time pass and what is due happen."""
        unread = sum(client.output.held_bytes for client in self.clients)
        self.held_byte_us["heap_byte_us"] += round(self.limiter.heap.held * seconds * 1e6)
        self.held_byte_us["direct_byte_us"] += round((self.limiter.direct.held - unread) * seconds * 1e6)
        self.loop.now += seconds
        self.step()

    # --- what a test looks at ---------------------------------------------------------------------

    def asked(self) -> list[Asked]:
        """Give the questions at open brokers that are not answered."""
        return [asked for broker in self.brokers if broker.open for asked in broker.questions]

    def books(self) -> dict[str, int]:
        """Give everything that must be zero when no client is there and every broker has answered."""
        heap, direct, queue = self.limiter.heap, self.limiter.direct, self.queues.queue(BROKER)
        return {
            "heap": heap.held,
            "heap waiting": heap.queue_size + heap.growers_waiting,
            "direct": direct.held,
            "direct waiting": direct.queue_size + direct.growers_waiting,
            "slots": queue.in_flight.held + queue.in_flight.queue_size,
            "estimates": queue.reservations.held + queue.reservations.queue_size,
            "room": queue.answers.held + queue.answers.queue_size,
            "arriving": len(self.service.arriving),
            "groups": len(self.service.groups),
            "work": self.service.working,
            "live": len(self.service.groups.registry),
            "pump": len(self.pump),
            "put off": len(self.loop_budget),
        }

    def live_groups(self) -> list[ListGroup]:
        """Give the groups that have members."""
        registry = self.service.groups.registry
        return [entry.member for number in registry.ids() if (entry := registry.find(number)) is not None]

    def close(self) -> None:
        """End everything; what was reported is the test's to judge."""
        self.run(self._closed())
        self.loop.close()

    async def _closed(self) -> None:
        for client in self.clients:
            client.leave()
        await turns(TURNS)
        await self.service.close()
        await turns(TURNS)
        assert not self.events.faults, self.events.faults[:3]
        await self.pool.close()
        await turns()
        self.limiter.close()
        self.pump.close()
        self.hangup.close()
