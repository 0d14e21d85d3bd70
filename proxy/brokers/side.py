"""The parts that lead to brokers: discovery, dialers, allowed targets, and the pool of request connections."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple, Self

from protocol.proxy_header import ProxyHeader, encode
from proxy.auth.own.broker_credentials import BrokerCredentials
from proxy.brokers import resolver
from proxy.brokers.admin_port import AdminPort
from proxy.brokers.broker_list import BrokerList
from proxy.brokers.connect_frames import ConnectFrames
from proxy.brokers.dialer import Dialer
from proxy.brokers.discovery import Brokers, BrokerSettings
from proxy.brokers.gate import TargetGate
from proxy.brokers.handshake import BrokerHandshake, ConnectProbe
from proxy.brokers.known_brokers import KnownBrokers
from proxy.brokers.list_question import ListQuestion
from proxy.brokers.pool import BrokerPool
from proxy.brokers.resolver import NAMES_AT_ONCE, CachingResolver, TargetNames
from proxy.brokers.sockets import Sockets
from proxy.brokers.target import BrokerAddress, CheckedTarget, NameResolver, TargetValidator
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.config.credential_targets import list_urls, secret_keys, withholds
from proxy.net import dial_places
from proxy.net.dial_places import DialPlaces, most_dials


class DialSettings(NamedTuple):
    """The time limit of a new connection, and the receive buffer of one for requests."""

    seconds: float
    receive_bytes: int

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the settings of a configuration."""
        seconds = config.seconds(Config.broker_proxy_connect_timeout_ms)
        return cls(seconds, config.broker_receive_bytes)


class TargetLists(NamedTuple):
    """What clients may reach: names, networks and ports of brokers, and ports of their web services."""

    names: tuple[str, ...]
    networks: tuple[str, ...]
    ports: tuple[str, ...]
    web_ports: tuple[str, ...]

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the lists of a configuration."""
        return cls(
            config.broker_proxy_allowed_host_names,
            config.broker_proxy_allowed_ip_addresses,
            config.broker_proxy_allowed_target_ports,
            config.broker_web_service_allowed_target_ports,
        )


class BrokerSide:
    """Everything that leads to brokers, once for each proxy."""

    def __init__(
        self,
        core: Core,
        sockets: Sockets,
        own: BrokerCredentials,
        connect_frames: ConnectFrames,
        load_connector: Callable[[], Callable[[Any], Any]],
    ) -> None:
        config, loop, counters = core.config, core.loop, core.counters
        # The configured brokers' names, those of targets that configuration or brokers have named, and clients' own.
        own_names, given, made_up = (_resolver(core) for _ in range(3))
        resolvers, self._target_names = (own_names, given, made_up), (given, made_up)

        def failed(broker: BrokerAddress, address: str) -> None:
            for names in resolvers:
                names.address_failed(broker.host, broker.port, address)

        # What a question over HTTP needs: credentials, TLS, and what makes a connector.
        tls = sockets.tls_files.broker_client if config.tls_enabled_with_broker else None
        self.admin_port = AdminPort(own, tls, load_connector)
        self.own, self.tls_client = own, tls
        self.connect_frames = connect_frames
        self.known = KnownBrokers(core.clock)
        self.listed = self._list(core)
        is_given = _named_by(config, self.known, self.listed)
        names = TargetNames(given, made_up, is_given)
        lists = TargetLists.of(config)
        self.validator = _validator(config, names, lists.ports)
        # Clients name no host over HTTP: redirects of servers do.
        self.web_validator = _validator(config, given, lists.web_ports)
        places = DialPlaces(most_dials(), loop)
        self.dialer, self.request_dialer = _dialers(core, sockets, failed, places)
        probe = _probe(core, sockets, self.request_dialer, connect_frames, self._configured)
        self.brokers = Brokers(core, BrokerSettings.of(config), own_names, probe)
        known = self.known if withholds(config) else None
        self.gate = TargetGate(core, self.brokers, self.validator, known, self.listed, is_given)
        check = self.gate.for_request
        self.pool = BrokerPool(core, sockets, self.request_dialer, check, connect_frames, self.brokers)
        counters.show(dial_places.DIALS, places.states)
        counters.show(dial_places.GIVEN_UP, lambda: places.given_up)
        counters.show(resolver.NAMES, lambda: sum((Counter(each.outcomes) for each in resolvers), Counter()))
        counters.show(resolver.HANGING, lambda: sum(each.hanging for each in resolvers))

    async def _configured(self, broker: BrokerAddress) -> CheckedTarget:
        return await self.gate.configured(broker)

    def _list(self, core: Core) -> BrokerList | None:
        """Return the brokers' own list, None if nobody needs it."""
        urls = list_urls(core.config)
        if not urls:
            return None
        question = ListQuestion(urls, core.config.cluster_name, self.admin_port)

        def crashed(error: BaseException) -> None:
            core.counters.internal_error(error, "list of brokers")

        return BrokerList(core.loop, question.ask, core.log.of("brokers"), crashed, core.loop_budget)

    def start(self) -> None:
        """Start probing brokers and resolving their names, and ask for the brokers' own list."""
        self.brokers.start(self.pool.has_open)
        if self.listed is not None:
            self.listed.start()

    async def close(self) -> None:
        """Close every connection, and stop resolving names."""
        await self.pool.close()
        if self.listed is not None:
            await self.listed.close()
        await self.brokers.close()
        for names in self._target_names:
            await names.close()

    def apply_dials(self, settings: DialSettings) -> None:
        """Apply the time limit of all new connections, and the receive buffer of those for requests."""
        for dialer in (self.dialer, self.request_dialer):
            dialer.timeout_seconds = settings.seconds
        requests = self.request_dialer
        requests.options = replace(requests.options, receive_buffer_bytes=settings.receive_bytes)

    def apply_targets(self, lists: TargetLists) -> None:
        """Apply the addresses that clients may reach from now on."""
        self.validator.apply(lists.names, lists.networks, lists.ports)
        self.web_validator.apply(lists.names, lists.networks, lists.web_ports)


def _probe(
    core: Core,
    sockets: Sockets,
    dialer: Dialer,
    connect_frames: ConnectFrames,
    check: Callable[[BrokerAddress], Awaitable[CheckedTarget]],
) -> ConnectProbe:
    of_connections = (core.loop, sockets.shared, sockets.hangup, core.loop_budget)
    return ConnectProbe(
        dialer,
        connect_frames,
        lambda frame: BrokerHandshake(*of_connections, frame),
        check,
        authentication=core.config.authentication_enabled,
    )


def _resolver(core: Core) -> CachingResolver:
    def crashed(error: BaseException) -> None:
        core.counters.internal_error(error, "names")

    ttl, stale_serves = core.config.broker_dns_ttl_seconds, _stale_serves(core.config)
    return CachingResolver(core.loop, ttl, NAMES_AT_ONCE, crashed, core.loop_budget, stale_serves=stale_serves)


def _stale_serves(config: Config) -> bool:
    """Return whether connections may go to an address that a name had until lately.

    The address may be somebody else's by now, to whom the certificate, or the lack of secret credentials, says nothing.
    """
    verified = config.tls_enabled_with_broker and not config.tls_allow_insecure_connection
    return (verified and config.tls_hostname_verification_enabled) or not secret_keys(config)


def _named_by(config: Config, known: KnownBrokers, listed: BrokerList | None) -> Callable[[str], bool]:
    """Return the test of host names in lower case: whether configuration or brokers have named a host."""
    configured = frozenset(host.lower() for host, _ in config.broker_hosts)

    def named(host: str) -> bool:
        return host in configured or known.named(host) or (listed is not None and listed.named(host))

    return named


def _validator(config: Config, names: NameResolver, ports: tuple[str, ...]) -> TargetValidator:
    hosts, networks = config.broker_proxy_allowed_host_names, config.broker_proxy_allowed_ip_addresses
    # A gateway serves strangers; a sidecar's clients can reach the addresses of their machine anyway.
    return TargetValidator(hosts, networks, ports, names, link_local=config.proxy_role == "sidecar")


def _dialers(
    core: Core,
    sockets: Sockets,
    failed: Callable[[BrokerAddress, str], None],
    places: DialPlaces,
) -> tuple[Dialer, Dialer]:
    """Return the dialer of relays, and the dialer of request connections."""
    config, loop = core.config, core.loop
    seconds, receive_bytes = DialSettings.of(config)
    tls = None
    if config.tls_enabled_with_broker:
        from proxy.net.tls.brokers import BrokerTls

        tls = BrokerTls(loop, sockets.tls, sockets.tls_files.broker, core.counters)
    options = replace(sockets.options, receive_buffer_bytes=receive_bytes)
    version = config.proxy_header_version
    # The PROXY header of a connection without a client says that it is local.
    preamble = encode(ProxyHeader(), version) if version else b""
    return (
        Dialer(loop, sockets.options, seconds, tls, on_failed=failed, places=places),
        Dialer(loop, options, seconds, tls, preamble, failed),
    )
