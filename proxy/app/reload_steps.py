"""Apply a changed configuration to the parts of a running proxy; `proxy.app.reload` maps keys to these steps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.app.broker_side import BrokerSide
from proxy.app.client_services import apply_handshake_memory
from proxy.app.list_memory import ListMemory
from proxy.app.overload import OverloadSwitch
from proxy.app.sockets import Sockets
from proxy.clients.connection_log import ConnectionLog
from proxy.clients.services import ClientLimits, ClientServices
from proxy.clients.sessions import SessionLimits, Sessions
from proxy.config.config import Config
from proxy.core.log_level import LogLevels
from proxy.net.send_buffers import SendSettings
from proxy.net.write_watch import WriteLimits, WriteWatch
from proxy.relay.relay_log import RelayLog
from proxy.relay.watch_limits import WatchLimits
from proxy.requests.topic_lists.broker_queues import TopicListLimits
from proxy.telemetry.events.recorder import Recorder

if TYPE_CHECKING:
    from proxy.net.spill.spill import ListSpill
    from proxy.web.port import WebPort


@dataclass(frozen=True, slots=True)
class LiveParts:
    """The parts of a running proxy that live keys change; those that are not configured are None.

    `budget` computes the worst case of all memory under a configuration, and logs it.
    """

    budget: Callable[[Config], None]
    memory: ListMemory
    recorder: Recorder | None
    writes: WriteWatch
    spill: "ListSpill | None"
    watch_limits: WatchLimits
    services: ClientServices
    sessions: Sessions
    sockets: Sockets
    broker_side: BrokerSide
    web: "WebPort | None"
    overload: OverloadSwitch
    log_levels: LogLevels
    connection_log: ConnectionLog
    relay_log: RelayLog


def apply_limiter(parts: LiveParts, config: Config) -> None:
    """Apply limits, queues and timeouts of both memories; held permits stay held."""
    parts.memory.apply(config)
    _notify_recorder(parts)


def apply_writes(parts: LiveParts, config: Config) -> None:
    """Apply the limits for clients that do not read."""
    parts.writes.limits = WriteLimits.of(config)


def apply_spill(parts: LiveParts, config: Config) -> None:
    """Apply the space for lists on disk, and a key's share of it."""
    if parts.spill is not None:
        parts.spill.apply(config)


def apply_watches(parts: LiveParts, config: Config) -> None:
    """Apply the limits of watch frames on relayed connections."""
    parts.watch_limits.apply(config)


def apply_topic_lists(parts: LiveParts, config: Config) -> None:
    """Apply timeouts and sizes of topic lists."""
    parts.services.requests.topic_lists.apply(TopicListLimits.of(config))
    _notify_recorder(parts)


def apply_requests(parts: LiveParts, config: Config) -> None:
    """Apply timeouts and the number of all other requests."""
    seconds = config.seconds(Config.topic_list_request_timeout_millis)
    parts.services.requests.lookups.apply(config.max_concurrent_lookup_requests, seconds)
    parts.services.requests.schemas.apply(seconds)


def apply_clients(parts: LiveParts, config: Config) -> None:
    """Apply the limits of a client, the number of clients, their timeouts and send buffers."""
    parts.services.limits = ClientLimits.of(config)
    parts.services.send_buffers.apply(SendSettings.of(config))
    apply_handshake_memory(parts.services.handshakes, parts.services.authentication, config)
    parts.services.direct_mode.apply(config.seconds(Config.broker_proxy_read_timeout_ms))
    parts.sessions.apply(SessionLimits.of(config))
    parts.sockets.hangup.ended.limit(config.max_concurrent_inbound_connections)


def apply_broker_pool(parts: LiveParts, config: Config) -> None:
    """Apply limits and timeouts of request connections, and the connect timeout of all new connections."""
    parts.broker_side.apply_pool(config)


def apply_targets(parts: LiveParts, config: Config) -> None:
    """Apply the addresses that clients may reach from now on."""
    parts.broker_side.apply_targets(config)


def apply_web(parts: LiveParts, config: Config) -> None:
    """Apply the limits and timeouts of the web ports."""
    if parts.web is not None:
        parts.web.apply(config)


def apply_budget(parts: LiveParts, config: Config) -> None:
    """Compute the worst case of all memory again, and log it."""
    parts.budget(config)


def apply_overload(parts: LiveParts, config: Config) -> None:
    """Start, change or end overload control."""
    parts.overload.apply(config)


def apply_log_level(parts: LiveParts, config: Config) -> None:
    """Apply the log levels now, or when a temporary level ends."""
    parts.log_levels.configure(config.log_level, config.component_levels)


def apply_connection_log(parts: LiveParts, config: Config) -> None:
    """Apply the share of connections that are logged."""
    parts.connection_log.apply(config)


def apply_relay_log(parts: LiveParts, config: Config) -> None:
    """Apply the level of the relay log to new relays."""
    parts.relay_log.set_level(int(config.proxy_log_level))


def _notify_recorder(parts: LiveParts) -> None:
    if parts.recorder is not None:
        parts.recorder.limits_changed()
