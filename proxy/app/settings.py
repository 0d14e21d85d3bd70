"""Read the limits of each part of the proxy out of the configuration, at the start and after a reload."""

import asyncio
from typing import Final

from limiter.dual import AsyncDualMemoryLimiter
from limiter.semaphore import AsyncSemaphore
from protocol.slabs import SLAB_BYTES
from protocol.topic_list import ANSWER_OVERHEAD_BYTES
from proxy.brokers.connection import BrokerClocks
from proxy.brokers.dialer import SocketOptions
from proxy.brokers.discovery import BrokerSettings
from proxy.brokers.pool import PoolLimits
from proxy.clients.services import ClientLimits
from proxy.clients.sessions import SessionLimits
from proxy.config.config import Config
from proxy.net.write_watch import WriteLimits
from proxy.relay.direct_mode import TargetRules
from proxy.relay.watch_limits import WatchLimits
from proxy.requests.topic_lists.broker_queues import TopicListLimits
from proxy.telemetry.counters import Counters, LimiterMetrics

MOST_SPARE_SLABS: Final = 64


def limiter(
    config: Config, loop: asyncio.AbstractEventLoop, heap: LimiterMetrics, direct: LimiterMetrics
) -> AsyncDualMemoryLimiter:
    """Make the limiter of both memories."""
    both = AsyncDualMemoryLimiter.create(
        heap_limit_bytes=config.heap_limit_bytes,
        heap_max_queue=config.max_topic_list_in_flight_heap_mem_size_permits_acquire_queue_size,
        heap_timeout_seconds=config.max_topic_list_in_flight_heap_mem_size_permits_acquire_timeout_millis / 1000,
        direct_limit_bytes=config.direct_limit_bytes,
        direct_max_queue=config.max_topic_list_in_flight_direct_mem_size_permits_acquire_queue_size,
        direct_timeout_seconds=config.max_topic_list_in_flight_direct_mem_size_permits_acquire_timeout_millis / 1000,
        clock=loop,
        heap_observer=heap,
        direct_observer=direct,
    )
    share_memory(both, config)
    return both


def share_memory(both: AsyncDualMemoryLimiter, config: Config) -> None:
    """Let keys take turns at both memories, or all stand in one line."""
    both.set_sharing(config.topic_list_fairness != "fifo", config.topic_list_max_memory_percent_per_key)


def first_estimate(config: Config) -> int:
    """Compute the heap permit of a list whose size is not known, in bytes."""
    return config.topic_list_initial_heap_permit_bytes + ANSWER_OVERHEAD_BYTES


def spare_slabs(config: Config) -> int:
    """Size the pool of free slabs: small beside the limits, so that memory nobody holds stays within their slack."""
    memory = config.heap_limit_bytes + config.direct_limit_bytes
    if not (config.heap_limit_bytes and config.direct_limit_bytes):
        return MOST_SPARE_SLABS
    return min(MOST_SPARE_SLABS, memory // 32 // SLAB_BYTES)


def session_limits(config: Config) -> SessionLimits:
    """Read how many clients there may be, and their clocks."""
    return SessionLimits(
        total=config.max_concurrent_inbound_connections,
        per_address=config.max_concurrent_inbound_connections_per_ip,
        handshake_seconds=config.handshake_timeout_millis / 1000,
        keep_alive_seconds=config.keep_alive_interval_seconds,
        read_timeout_seconds=config.broker_proxy_read_timeout_ms / 1000,
        credentials_seconds=config.authentication_refresh_check_seconds,
        max_age_seconds=config.max_connection_age_seconds,
    )


def broker_settings(config: Config) -> BrokerSettings:
    """Read which brokers there are, and how they are kept up with."""
    key = Config.broker_service_url_tls if config.tls_enabled_with_broker else Config.broker_service_url
    return BrokerSettings(
        hosts=config.broker_hosts,
        tls=config.tls_enabled_with_broker,
        dns_ttl_seconds=config.broker_dns_ttl_seconds,
        longest_pause_seconds=config.broker_probe_interval_millis / 1000,
        key=key.name,
    )


def header_version(config: Config) -> int:
    """Read which version of the PROXY protocol brokers expect; 0: none."""
    version = config.broker_ha_proxy_protocol_version
    return 0 if version == "none" or not config.ha_proxy_protocol_enabled else int(version)


def target_rules(config: Config) -> TargetRules:
    """Read how brokers that clients name are reached."""
    return TargetRules(config.tls_enabled_with_broker, config.check_active_brokers, header_version(config))


def watch_limits(config: Config, direct: AsyncSemaphore, counters: Counters) -> WatchLimits:
    """Make the limits of watch frames on relayed connections."""
    made = WatchLimits(
        direct,
        counters,
        window_bytes=config.relay_buffer_bytes,
        enabled=True,
        max_pause_seconds=0,
        longest_hold_seconds=0,
    )
    apply_watches(made, config)
    return made


def apply_watches(watches: WatchLimits, config: Config) -> None:
    """Change the limits of watch frames."""
    watches.enabled = config.watch_topic_list_limit_enabled
    watches.max_pause_seconds = config.watch_topic_list_max_pause_millis / 1000
    watches.longest_hold_seconds = config.topic_list_request_timeout_millis / 1000


def write_limits(config: Config) -> WriteLimits:
    """Read when a client is closed for not reading."""
    return WriteLimits(
        stall_seconds=config.topic_list_write_stall_timeout_millis / 1000,
        min_bytes_per_second=config.topic_list_write_min_bytes_per_second,
    )


def socket_options(config: Config) -> SocketOptions:
    """Read the options of every socket."""
    return SocketOptions(
        keep_alive_idle_seconds=config.tcp_keep_alive_idle_seconds,
        keep_alive_interval_seconds=config.tcp_keep_alive_interval_seconds,
        keep_alive_probes=config.tcp_keep_alive_probes,
        user_timeout_millis=config.tcp_user_timeout_millis,
    )


def pool_limits(config: Config) -> PoolLimits:
    """Read how many request connections there may be, their clocks and their CONNECT."""
    return PoolLimits(
        per_key=config.broker_connections_per_key,
        total=config.broker_connections_total,
        clocks=BrokerClocks(
            keep_alive_seconds=config.keep_alive_interval_seconds,
            answer_timeout_seconds=config.topic_list_broker_answer_timeout_millis / 1000,
            idle_seconds=config.broker_connection_idle_millis / 1000,
        ),
        challenge_seconds=config.authentication_refresh_check_seconds,
    )


def list_limits(config: Config) -> TopicListLimits:
    """Read the times and sizes of topic lists."""
    return TopicListLimits(
        request_timeout_seconds=config.topic_list_request_timeout_millis / 1000,
        max_answer_bytes=config.topic_list_answer_limit_bytes,
        max_outstanding_per_broker=config.topic_list_max_outstanding_per_broker,
        coalescing=config.topic_list_coalescing_enabled,
        share_by_key=config.topic_list_fairness != "fifo",
        key_cap_percent=config.topic_list_max_memory_percent_per_key,
    )


def client_limits(config: Config) -> ClientLimits:
    """Read what one client may do."""
    return ClientLimits(
        max_frame_bytes=config.max_lookup_frame_bytes,
        max_message_bytes=config.max_message_size,
        max_outstanding=config.max_outstanding_requests_per_connection,
        send_buffer_bytes=config.client_socket_send_buffer_bytes,
        frame_seconds=config.topic_list_request_timeout_millis / 1000,
        keep_alive=config.keep_alive_interval_seconds > 0,
    )
