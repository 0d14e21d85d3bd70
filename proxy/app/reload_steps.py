"""Apply a changed configuration to each part of a running proxy; `proxy.app.reload` maps keys to these steps."""

from proxy.app.client_services import apply_handshake_memory
from proxy.app.list_memory import first_estimate
from proxy.app.proxy import Proxy
from proxy.clients.services import ClientLimits
from proxy.clients.sessions import SessionLimits
from proxy.config.config import Config
from proxy.net.send_buffers import SendSettings
from proxy.net.write_watch import WriteLimits
from proxy.requests.topic_lists.broker_queues import TopicListLimits


def apply_limiter(proxy: Proxy, config: Config) -> None:
    """Apply limits, queues and timeouts of both memories; held permits stay held."""
    proxy.memory.apply(config)
    _notify_recorder(proxy)


def apply_writes(proxy: Proxy, config: Config) -> None:
    """Apply the limits for clients that do not read."""
    proxy.writes.limits = WriteLimits.of(config)


def apply_spill(proxy: Proxy, config: Config) -> None:
    """Apply the space for lists on disk, and a key's share of it."""
    if proxy.spill is not None:
        proxy.spill.apply(config)


def apply_watches(proxy: Proxy, config: Config) -> None:
    """Apply the limits of watch frames on relayed connections."""
    proxy.watch_limits.apply(config)


def apply_topic_lists(proxy: Proxy, config: Config) -> None:
    """Apply timeouts and sizes of topic lists."""
    proxy.memory.sizes.initial_bytes = first_estimate(config)
    proxy.services.requests.topic_lists.apply(TopicListLimits.of(config))
    _notify_recorder(proxy)


def apply_requests(proxy: Proxy, config: Config) -> None:
    """Apply timeouts and the number of all other requests."""
    seconds = config.seconds(Config.topic_list_request_timeout_millis)
    proxy.services.requests.lookups.apply(config.max_concurrent_lookup_requests, seconds)
    proxy.services.requests.schemas.apply(seconds)


def apply_clients(proxy: Proxy, config: Config) -> None:
    """Apply the limits of a client, the number of clients, their timeouts and send buffers."""
    proxy.services.limits = ClientLimits.of(config)
    proxy.services.send_buffers.apply(SendSettings.of(config))
    apply_handshake_memory(proxy.services.handshakes, config)
    proxy.services.direct_mode.apply(config.seconds(Config.broker_proxy_read_timeout_ms))
    proxy.sessions.apply(SessionLimits.of(config))
    proxy.sockets.hangup.ended.limit(config.max_concurrent_inbound_connections)


def apply_broker_pool(proxy: Proxy, config: Config) -> None:
    """Apply limits and timeouts of request connections, and the connect timeout of all new connections."""
    proxy.broker_side.apply_pool(config)


def apply_targets(proxy: Proxy, config: Config) -> None:
    """Apply the addresses that clients may reach from now on."""
    proxy.broker_side.apply_targets(config)


def apply_web(proxy: Proxy, config: Config) -> None:
    """Apply the limits and timeouts of the web ports."""
    if proxy.web is not None:
        proxy.web.apply(config)


def apply_budget(proxy: Proxy, config: Config) -> None:
    """Compute the worst case of all memory again, and log it."""
    proxy.compute_budget(config)
    proxy.log_budget()


def apply_overload(proxy: Proxy, config: Config) -> None:
    """Start, change or end overload control."""
    proxy.overload.apply(config)


def apply_log_level(proxy: Proxy, config: Config) -> None:
    """Apply the log levels now, or when a temporary level ends."""
    proxy.log_levels.configure(config.log_level, config.component_levels)


def apply_connection_log(proxy: Proxy, config: Config) -> None:
    """Apply the share of connections that are logged, and the most lines of a second."""
    proxy.connection_log.apply(config)


def apply_relay_log(proxy: Proxy, config: Config) -> None:
    """Apply the level of the relay log to new relays."""
    proxy.relay_log.set_level(int(config.proxy_log_level))


def _notify_recorder(proxy: Proxy) -> None:
    if proxy.recorder is not None:
        proxy.recorder.limits_changed()
