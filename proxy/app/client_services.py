"""What clients are served with, put together out of the parts of the proxy."""

from typing import TYPE_CHECKING

from eventlog.sink import EventSink
from limiter.semaphore import AsyncSemaphore
from proxy.clients.requests import RequestServices
from proxy.clients.services import ClientLimits, ClientServices
from proxy.config.config import Config
from proxy.net.send_buffers import SendBuffers
from proxy.relay.direct_mode import DirectMode, TargetRules
from proxy.requests.lookups import LookupService
from proxy.requests.schemas import SchemaService
from proxy.requests.topic_lists.service import TopicListService
from proxy.telemetry.events.identities import EventIdentities, key_of
from proxy.telemetry.events.recorder import Recorder

if TYPE_CHECKING:
    from proxy.app.proxy import Proxy


def client_services(proxy: "Proxy") -> ClientServices:
    """Put together what all client connections share."""
    sockets, introductions = proxy.sockets, proxy.identities.introductions
    return ClientServices(
        loop=proxy.loop,
        shared=sockets.shared,
        hangup=sockets.hangup,
        counters=proxy.counters,
        limits=ClientLimits.of(proxy.config),
        direct=proxy.memory.limiter.direct,
        requests=_request_services(proxy),
        direct_mode=_direct_mode(proxy),
        sessions=proxy.sessions,
        server_version=introductions.versions.server_version,
        writes=proxy.writes,
        turns=sockets.turns,
        charging=proxy.memory.charging,
        send_buffers=SendBuffers(proxy.counters),
        authentication=proxy.identities.clients,
    )


def recorder(proxy: "Proxy", sink: EventSink | None) -> Recorder | None:
    """Make the recorder of topic lists; none without a `sink` for its events."""
    if sink is None:
        return None
    config, memory = proxy.config, proxy.memory
    return Recorder(
        sink,
        EventIdentities(key_of(config.event_log_salt), plain=config.event_log_identities == "plain"),
        memory.limiter,
        proxy.questions,
        memory.charging,
        lambda error: proxy.counters.internal_error(error, "event log"),
        later=proxy.loop.call_later,
    )


def _direct_mode(proxy: "Proxy") -> DirectMode:
    config, sockets, side = proxy.config, proxy.sockets, proxy.broker_side
    return DirectMode(
        proxy.loop,
        sockets.shared,
        sockets.hangup,
        proxy.counters,
        side.dialer,
        side.validator,
        side.brokers,
        TargetRules.of(config),
        proxy.identities.introductions,
        config.seconds(Config.broker_proxy_read_timeout_ms),
        proxy.watch_limits,
        proxy.relay_log,
    )


def _request_services(proxy: "Proxy") -> RequestServices:
    side = proxy.broker_side
    return RequestServices(
        loop=proxy.loop,
        counters=proxy.counters,
        brokers=side.brokers,
        lookups=_lookups(proxy),
        topic_lists=_topic_lists(proxy),
        turns=proxy.sockets.turns,
        schemas=_schemas(proxy),
        refusals=proxy.refusals,
        recorder=proxy.recorder,
    )


def _lookups(proxy: "Proxy") -> LookupService:
    config, side = proxy.config, proxy.broker_side
    concurrency = AsyncSemaphore(
        "lookups", config.max_concurrent_lookup_requests, max_queue=1, timeout_seconds=0, clock=proxy.loop
    )
    seconds, tls = config.seconds(Config.topic_list_request_timeout_millis), config.tls_enabled_with_broker
    return LookupService(proxy.loop, side.pool, side.brokers, concurrency, proxy.counters, seconds, tls=tls)


def _topic_lists(proxy: "Proxy") -> TopicListService:
    memory, sockets = proxy.memory, proxy.sockets
    return TopicListService(
        proxy.loop,
        memory.limiter,
        proxy.questions,
        sockets.pump,
        sockets.turns,
        memory.sizes,
        memory.charging,
        proxy.counters,
        proxy.refusals,
        proxy.usage,
    )


def _schemas(proxy: "Proxy") -> SchemaService:
    memory, side = proxy.memory, proxy.broker_side
    seconds = proxy.config.seconds(Config.topic_list_request_timeout_millis)
    return SchemaService(
        proxy.loop,
        side.pool,
        side.brokers,
        memory.limiter,
        memory.slabs,
        proxy.counters,
        proxy.refusals,
        seconds,
        memory.charging,
    )
