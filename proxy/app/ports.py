"""The ports for Pulsar clients: plain, with TLS, and ports that each lead to a fixed broker."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol.proxy_header import ProxyHeader
from proxy.app.metrics.counters import Counters
from proxy.app.sockets import Sockets
from proxy.brokers.target import BrokerAddress
from proxy.clients.connection import ClientConnection
from proxy.clients.listener import Listener
from proxy.clients.sessions import Sessions
from proxy.config.config import Config
from proxy.core.log import Logger
from proxy.net.trusted_balancers import TrustedBalancers

if TYPE_CHECKING:
    from proxy.net.tls.arrivals import Arrival, Arrivals

# Arguments: the address, the PROXY header, and the broker to which the port leads ("": none).
MakeClient = Callable[[str, ProxyHeader | None, str], ClientConnection]


class ClientPorts:
    """Accepts clients on every port until closed."""

    def __init__(
        self,
        config: Config,
        loop: asyncio.AbstractEventLoop,
        sockets: Sockets,
        sessions: Sessions,
        counters: Counters,
        log: Logger,
        make_client: MakeClient,
    ) -> None:
        self._config = config
        self._loop = loop
        self._sockets = sockets
        self._sessions = sessions
        self._counters = counters
        self._log = log
        self._make_client = make_client
        self._listeners: list[Listener] = []
        self._arrivals: list[Arrivals] = []
        # The last client that came without a bound; None while no bound is set.
        self._bounded_after: int | None = None
        self._received = 0
        self.port = 0
        self.tls_port = 0

    def open(self) -> None:
        """Listen on the configured ports; raises OSError if a port cannot be bound."""
        config = self._config
        if config.service_port is not None:
            self.port = self._open(config.service_port, tls=False)
        if config.service_port_tls is not None:
            self.tls_port = self._open(config.service_port_tls, tls=True)

    def open_for_broker(self, port: int, broker: BrokerAddress, tls: bool) -> int:
        """Listen on `port` and relay its clients to `broker`; return the port. Raises OSError if it cannot be bound."""
        return self._open(port, tls=tls, target=str(broker))

    def bound_received(self, size: int) -> None:
        """Bound the kernel's receive buffer of clients that come from now on; 0 leaves the kernel's choice again."""
        self._received = size
        if bool(size) != (self._bounded_after is not None):
            self._bounded_after = self._sessions.registry.last_id if size else None
        for listener in self._listeners:
            listener.bound_received(size)

    @property
    def older_clients(self) -> int:
        """Count the clients that came before their receive buffers were bounded; 0 while no bound is set."""
        registry, after = self._sessions.registry, self._bounded_after
        return 0 if after is None else sum(entry_id <= after for entry_id in registry.ids())

    async def close(self) -> None:
        """Stop accepting; accepted clients stay connected."""
        for listener in self._listeners:
            await listener.close()

    async def end(self) -> None:
        """Abort the TLS handshakes that are in progress after the drain."""
        for arrivals in self._arrivals:
            await arrivals.close()

    def _open(self, port: int, *, tls: bool, target: str = "") -> int:
        arrivals = self._handshakes(target) if tls else None
        balancers = None
        if self._config.ha_proxy_protocol_enabled:
            balancers = TrustedBalancers(self._config.trusted_load_balancer_ip_addresses)
        listener = Listener(
            self._loop,
            self._sessions,
            self._counters.clients,
            self._counters.net,
            self._log,
            self._sockets.options,
            lambda address, header: self._make_client(address, header, target),
            arrivals,
            balancers=balancers,
        )
        if arrivals is not None:
            self._arrivals.append(arrivals)
        opened = listener.open(self._config.bind_address, port, self._config.accept_backlog)
        if self._received:
            listener.bound_received(self._received)
        self._listeners.append(listener)
        return opened

    def _handshakes(self, target: str) -> "Arrivals":
        # Only a port with TLS needs this.
        from proxy.net.tls.arrivals import Arrivals

        def became_client(arrival: "Arrival") -> ClientConnection:
            client = self._make_client(arrival.client_address, arrival.header, target)
            self._sessions.became_client(arrival, client)
            return client

        return Arrivals(
            self._loop,
            self._sockets.tls,
            self._sockets.tls_files.server,
            self._config.max_concurrent_tls_handshakes,
            self._sessions,
            became_client,
            self._counters.tls,
            self._log,
        )
