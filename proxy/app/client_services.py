"""Build the services that all client connections share."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eventlog.sink import EventSink
from limiter.semaphore import AsyncSemaphore
from proxy.app.broker_side import BrokerSide
from proxy.app.identities import Identities
from proxy.app.list_memory import ListMemory
from proxy.app.sockets import Sockets
from proxy.auth.client_authentication import ClientAuthentication
from proxy.clients.requests import RequestServices
from proxy.clients.services import ClientLimits, ClientServices
from proxy.clients.sessions import Sessions
from proxy.clients.upload_watch import UploadWatch
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.core.counters import Counters
from proxy.core.log import Logger
from proxy.core.task_turns import LeaveTurns
from proxy.net.send_buffers import SendBuffers, SendSettings
from proxy.net.write_watch import WriteWatch
from proxy.relay.direct_mode import DirectMode, TargetRules
from proxy.relay.engine import RelayEngine
from proxy.requests.lookups import LookupService
from proxy.requests.schemas import SchemaService
from proxy.requests.topic_lists.broker_queues import BrokerQueues
from proxy.requests.topic_lists.service import TopicListService
from proxy.telemetry.events.identities import EventIdentities, key_of
from proxy.telemetry.events.recorder import Recorder
from proxy.telemetry.heavy_hitters import UsageTracker
from proxy.telemetry.limiter_metrics import LimiterMetrics
from proxy.telemetry.refusals import RefusalLog

if TYPE_CHECKING:
    from proxy.net.spill.spill import ListSpill
    from proxy.requests.request_bytes import RequestBytes


@dataclass(frozen=True, slots=True)
class ClientParts:
    """The parts from which services are built; `spill` and `recorder` are None where they are not configured."""

    config: Config
    loop: asyncio.AbstractEventLoop
    counters: Counters
    identities: Identities
    memory: ListMemory
    sockets: Sockets
    sessions: Sessions
    broker_side: BrokerSide
    broker_queues: BrokerQueues
    usage: UsageTracker
    refusals: RefusalLog
    relay_engine: RelayEngine
    writes: WriteWatch
    log: Logger
    spill: "ListSpill | None"
    recorder: Recorder | None


def client_services(parts: ClientParts) -> ClientServices:
    """Return the services that all client connections share."""
    sockets, connect_frames = parts.sockets, parts.identities.connect_frames
    handshakes, waits = _handshakes(parts)

    def served() -> int:
        return parts.memory.waiters_served() + waits.served_waiters

    return ClientServices(
        loop=parts.loop,
        shared=sockets.shared,
        hangup=sockets.hangup,
        counters=parts.counters,
        limits=ClientLimits.of(parts.config),
        direct=parts.memory.limiter.direct,
        frames=parts.memory.frames,
        handshakes=handshakes,
        uploads=UploadWatch(lambda: parts.writes.limits, served, parts.log),
        requests=_request_services(parts),
        direct_mode=_direct_mode(parts),
        sessions=parts.sessions,
        server_version=connect_frames.versions.server_version,
        writes=parts.writes,
        loop_budget=sockets.loop_budget,
        fairness_keys=parts.memory.fairness_keys,
        send_buffers=SendBuffers(parts.loop, parts.counters, SendSettings.of(parts.config)),
        authentication=parts.identities.clients,
    )


def limit_handshakes(handshakes: AsyncSemaphore, authentication: ClientAuthentication | None, limit: int) -> None:
    """Set the memory for large frames before CONNECTED, which is also that of large credentials that are kept."""
    handshakes.set_limit(limit)
    if authentication is not None:
        authentication.holders.kept.memory.set_limit(limit)


def _handshakes(parts: ClientParts) -> tuple[AsyncSemaphore, LimiterMetrics]:
    """Return the memory of large frames before CONNECTED, in turns by address, and its observer.

    The queue needs no bound of its own: each waiter is a connection that is not read.
    """
    waits = LimiterMetrics(parts.loop.time)
    seconds = parts.config.seconds(Config.handshake_timeout_millis)
    handshakes = AsyncSemaphore(
        "handshake", 0, max_queue=0, timeout_seconds=seconds, clock=parts.loop, observer=waits.waited, share_by_key=True
    )
    limit_handshakes(handshakes, parts.identities.clients, parts.config.handshake_bytes)
    return handshakes, waits


def make_recorder(
    core: Core,
    memory: ListMemory,
    broker_queues: BrokerQueues,
    sink: EventSink | None,
) -> Recorder | None:
    """Return the recorder of topic lists, or None without a `sink` for its events."""
    if sink is None:
        return None
    return Recorder(
        sink,
        EventIdentities(key_of(core.config.event_log_salt), plain=core.config.event_log_identities == "plain"),
        memory.limiter,
        broker_queues,
        memory.fairness_keys,
        lambda error: core.counters.internal_error(error, "event log"),
        later=core.loop.call_later,
    )


def _direct_mode(parts: ClientParts) -> DirectMode:
    config, sockets, side = parts.config, parts.sockets, parts.broker_side
    return DirectMode(
        parts.loop,
        sockets.shared,
        sockets.hangup,
        sockets.loop_budget,
        parts.relay_engine,
        side.dialer,
        side.gate,
        side.brokers,
        TargetRules.of(config),
        parts.identities.connect_frames,
        config.seconds(Config.broker_proxy_read_timeout_ms),
    )


def _request_services(parts: ClientParts) -> RequestServices:
    return RequestServices(
        loop=parts.loop,
        counters=parts.counters,
        lookups=_lookups(parts),
        topic_lists=_topic_lists(parts),
        loop_budget=parts.sockets.loop_budget,
        schemas=_schemas(parts),
        refusals=parts.refusals,
        leaving=LeaveTurns(
            parts.loop,
            parts.sockets.loop_budget,
            lambda error: parts.counters.internal_error(error, "client that left"),
        ),
        recorder=parts.recorder,
    )


def _lookups(parts: ClientParts) -> LookupService:
    config, side = parts.config, parts.broker_side
    concurrency = AsyncSemaphore(
        "lookups", config.max_concurrent_lookup_requests, max_queue=1, timeout_seconds=0, clock=parts.loop
    )
    seconds, tls = config.seconds(Config.topic_list_request_timeout_millis), config.tls_enabled_with_broker
    return LookupService(
        parts.loop,
        side.pool,
        side.brokers,
        concurrency,
        parts.counters,
        seconds,
        tls=tls,
        known=side.known,
        request_bytes=_request_bytes(parts),
    )


def _request_bytes(parts: ClientParts) -> "RequestBytes | None":
    """Return the memory for commands, None without a limit."""
    limit = parts.config.command_bytes_limit
    if not limit:
        return None
    # Only installations with a limit need the module.
    from proxy.requests.request_bytes import RequestBytes

    return RequestBytes(parts.loop, limit, parts.sockets.loop_budget)


def _topic_lists(parts: ClientParts) -> TopicListService:
    memory, sockets, side = parts.memory, parts.sockets, parts.broker_side
    return TopicListService(
        parts.loop,
        memory.limiter,
        parts.broker_queues,
        side.pool,
        side.brokers,
        memory.slabs,
        sockets.pump,
        sockets.loop_budget,
        memory.sizes,
        memory.fairness_keys,
        parts.counters,
        parts.refusals,
        parts.usage,
        memory.unproven,
        parts.spill,
    )


def _schemas(parts: ClientParts) -> SchemaService:
    memory, side = parts.memory, parts.broker_side
    seconds = parts.config.seconds(Config.topic_list_request_timeout_millis)
    return SchemaService(
        parts.loop,
        side.pool,
        side.brokers,
        memory.limiter,
        memory.slabs,
        parts.counters,
        parts.refusals,
        seconds,
        memory.fairness_keys,
        memory.unproven.shares,
    )
