"""The parts that lead to brokers: discovery, dialers, allowed targets, and the pool of request connections."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Final

from protocol.proxy_header import ProxyHeader, encode
from proxy.app.metrics.counters import Counters
from proxy.app.sockets import Sockets
from proxy.brokers.connect_frames import ConnectFrames
from proxy.brokers.dialer import Dialer
from proxy.brokers.discovery import Brokers, BrokerSettings
from proxy.brokers.pool import BrokerPool, PoolLimits
from proxy.brokers.resolver import CachingResolver
from proxy.brokers.target import BrokerAddress, TargetValidator
from proxy.config.config import Config
from proxy.core.log import Logger
from proxy.net.tls.brokers import BrokerTls

# Most concurrent lookups of names: libuv has four threads for all calls of the system's resolver.
CLIENT_NAMES_AT_ONCE: Final = 3
BROKER_NAMES_AT_ONCE: Final = 1


class BrokerSide:
    """Everything that leads to brokers, once for each proxy."""

    def __init__(
        self,
        config: Config,
        loop: asyncio.AbstractEventLoop,
        sockets: Sockets,
        connect_frames: ConnectFrames,
        counters: Counters,
        log: Logger,
    ) -> None:
        self._names = _resolver(config, loop, counters, CLIENT_NAMES_AT_ONCE)
        own_names = _resolver(config, loop, counters, BROKER_NAMES_AT_ONCE)
        self.validator = _validator(config, self._names, config.broker_proxy_allowed_target_ports)
        self.web_validator = _validator(config, self._names, config.broker_web_service_allowed_target_ports)
        self.dialer, self._request_dialer = _dialers(config, loop, sockets, counters)
        self.brokers = Brokers(loop, BrokerSettings.of(config), own_names, self.dialer, counters.brokers, log)
        self.pool = BrokerPool(
            loop,
            self._request_dialer,
            self._resolve,
            sockets.shared,
            sockets.hangup,
            sockets.loop_budget,
            counters.brokers,
            log,
            PoolLimits.of(config),
            connect_frames,
            self.brokers,
        )
        counters.brokers.broker_connection_states = self.pool.states
        counters.brokers.broker_member_states = self.brokers.states
        counters.brokers.broker_names = lambda: Counter(self._names.outcomes) + Counter(own_names.outcomes)

    async def close(self) -> None:
        """Close every connection, and stop resolving names."""
        await self.pool.close()
        await self.brokers.close()
        await self._names.close()

    def apply_pool(self, config: Config) -> None:
        """Apply limits and timeouts of request connections, and the connect timeout of all new connections."""
        for dialer in (self.dialer, self._request_dialer):
            dialer.timeout_seconds = config.seconds(Config.broker_proxy_connect_timeout_ms)
        self.pool.apply(PoolLimits.of(config))

    def apply_targets(self, config: Config) -> None:
        """Apply the addresses that clients may reach from now on."""
        names, networks = config.broker_proxy_allowed_host_names, config.broker_proxy_allowed_ip_addresses
        self.validator.apply(names, networks, config.broker_proxy_allowed_target_ports)
        self.web_validator.apply(names, networks, config.broker_web_service_allowed_target_ports)

    async def _resolve(self, broker: BrokerAddress) -> list[str]:
        # A configured broker needs no permission; a redirect may lead only to targets that clients may reach.
        return await (self.brokers.resolve(broker) if broker in self.brokers else self.validator.resolve(broker))


def _resolver(config: Config, loop: asyncio.AbstractEventLoop, counters: Counters, at_once: int) -> CachingResolver:
    def crashed(error: BaseException) -> None:
        counters.internal_error(error, "names")

    return CachingResolver(loop, config.broker_dns_ttl_seconds, at_once, crashed)


def _validator(config: Config, names: CachingResolver, ports: tuple[str, ...]) -> TargetValidator:
    hosts, networks = config.broker_proxy_allowed_host_names, config.broker_proxy_allowed_ip_addresses
    return TargetValidator(hosts, networks, ports, names)


def _dialers(
    config: Config, loop: asyncio.AbstractEventLoop, sockets: Sockets, counters: Counters
) -> tuple[Dialer, Dialer]:
    """Return the dialer of relays, and the dialer of request connections."""
    seconds = config.seconds(Config.broker_proxy_connect_timeout_ms)
    tls = None
    if config.tls_enabled_with_broker:
        tls = BrokerTls(loop, sockets.tls, sockets.tls_files.broker_client, counters.tls)
    options = replace(sockets.options, receive_buffer_bytes=config.broker_socket_receive_buffer_bytes)
    version = config.proxy_header_version
    # The PROXY header of a connection without a client says that it is local.
    preamble = encode(ProxyHeader(), version) if version else b""
    return Dialer(loop, sockets.options, seconds, tls), Dialer(loop, options, seconds, tls, preamble)
