"""Limits and targets of the web ports, read from the configuration."""

from dataclasses import dataclass
from typing import Final, Self

from proxy.brokers.dialer import SocketOptions
from proxy.config.config import Config
from proxy.config.sources import ReverseProxyRoute
from proxy.web.forward.gate import GATE_SECONDS, GateLimits
from proxy.web.http.origins import OriginRules

# A body holds this many times httpOutputBufferSize in each direction: the piece being written (1), read-ahead (1), and
# one read from the kernel, which doubles the receive buffer (2).
WINDOW_BUFFERS: Final = 4
# Connections of `metricsPort`: those of a few monitors, and of probes, each of which asks for a page and leaves.
METRICS_CONNECTIONS: Final = 16
# Connections to each web service that are in use.
MOST_CONNECTIONS_A_SERVER: Final = 256
# This part of the connections may be WebSockets: the others are for requests, however many stay open.
TUNNELS_PART: Final = 2


@dataclass(frozen=True, slots=True)
class WebLimits:
    """Sizes and times of forwarded requests, in bytes and seconds."""

    buffer_bytes: int
    # The size that the kernel is asked for; the kernel doubles it.
    send_buffer_bytes: int
    max_header_bytes: int
    max_answer_header_bytes: int
    replay_bytes: int
    exchange_seconds: float
    connect_seconds: float
    metrics_seconds: float
    most_asked_lists: int
    max_connections: int
    max_tunnels: int
    gate: GateLimits
    sockets: SocketOptions
    origins: OriginRules

    @property
    def window_bytes(self) -> int:
        """Return the most bytes that a body holds in one direction."""
        return WINDOW_BUFFERS * self.buffer_bytes

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the limits of a configuration."""
        buffer_bytes, exchange_seconds = config.http_output_buffer_size, config.seconds(Config.http_proxy_timeout)
        return cls(
            buffer_bytes=buffer_bytes,
            # Own pages are small, and whole in memory: nothing is streamed but what is passed on.
            send_buffer_bytes=2 * buffer_bytes if WebTargets.of(config).any else buffer_bytes // 2,
            max_header_bytes=config.http_max_request_header_size,
            max_answer_header_bytes=config.http_max_response_header_size,
            replay_bytes=config.http_input_max_replay_buffer_size,
            exchange_seconds=exchange_seconds,
            connect_seconds=config.seconds(Config.broker_proxy_connect_timeout_ms),
            most_asked_lists=config.topic_list_max_outstanding_per_broker,
            metrics_seconds=config.seconds(Config.metrics_servlet_timeout_ms),
            max_connections=config.max_http_server_connections,
            max_tunnels=max(1, config.max_http_server_connections // TUNNELS_PART),
            gate=GateLimits(
                config.max_concurrent_http_requests,
                config.http_requests_max_per_second,
                config.http_requests_limit_enabled,
                # Each connection has one request at a time.
                max_waiting=config.max_http_server_connections,
                wait_seconds=min(GATE_SECONDS, exchange_seconds),
            ),
            sockets=SocketOptions.of(config),
            origins=OriginRules(config.web_service_allowed_hosts, config.web_service_allowed_origins),
        )


@dataclass(frozen=True, slots=True)
class WebTargets:
    """The base URLs of the servers that requests are forwarded to, and whether a certificate is shown to them."""

    brokers: tuple[str, ...]
    function_workers: tuple[str, ...]
    extra: tuple[ReverseProxyRoute, ...]
    shows_certificate: bool

    @property
    def third_parties(self) -> tuple[str, ...]:
        """Return the URLs of servers that are neither brokers nor function workers."""
        return tuple(route.proxy_to for route in self.extra)

    @property
    def urls(self) -> tuple[str, ...]:
        """Return every configured URL."""
        return (*self.brokers, *self.function_workers, *self.third_parties)

    @property
    def any(self) -> bool:
        """Return whether any server is configured."""
        return bool(self.urls)

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the targets of a configuration; with `tlsEnabledWithBroker` those of the keys that end with TLS."""
        tls = config.tls_enabled_with_broker
        brokers = config.broker_web_service_url_tls if tls else config.broker_web_service_url
        workers = config.function_worker_web_service_url_tls if tls else config.function_worker_web_service_url
        return cls(
            brokers, workers, config.http_reverse_proxies,
            shows_certificate=tls and bool(config.value(config.broker_client_certificate())),
        )  # fmt: skip
