"""The ports for Pulsar clients: plain, with TLS, and those that stand for one broker each."""

import asyncio
from collections.abc import Callable

from protocol.proxy_header import ProxyHeader
from proxy.app.metrics.counters import Counters
from proxy.app.sockets import Sockets
from proxy.brokers.target import BrokerAddress
from proxy.clients.connection import ClientConnection
from proxy.clients.listener import Listener
from proxy.clients.sessions import Sessions
from proxy.config.config import Config
from proxy.core.log import Logger
from proxy.net.tls.arrivals import Arrival, Arrivals

# Address, header of a load balancer, and the broker that the port stands for ("": none).
MakeClient = Callable[[str, ProxyHeader | None, str], ClientConnection]


class ClientPorts:
    """Accept clients on every port until closed."""

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
        self.port = 0
        self.tls_port = 0

    def open(self) -> None:
        """Listen on the ports of the configuration; raises OSError if one of them cannot be had."""
        config = self._config
        if config.service_port is not None:
            self.port = self._open(config.service_port, tls=False)
        if config.service_port_tls is not None:
            self.tls_port = self._open(config.service_port_tls, tls=True)

    def open_for_broker(self, port: int, broker: BrokerAddress, tls: bool) -> int:
        """Join who comes to `port` to `broker`; raises OSError if the port cannot be had."""
        return self._open(port, tls=tls, target=str(broker))

    async def close(self) -> None:
        """Stop accepting; those accepted already stay."""
        for listener in self._listeners:
            await listener.close()

    async def end(self) -> None:
        """Give up the handshakes that are left, when the drain is over."""
        for arrivals in self._arrivals:
            await arrivals.close()

    def _open(self, port: int, *, tls: bool, target: str = "") -> int:
        arrivals = self._handshakes(target) if tls else None
        listener = Listener(
            self._loop,
            self._sessions,
            self._counters.clients,
            self._counters.net,
            self._log,
            self._sockets.options,
            lambda address, header: self._make_client(address, header, target),
            arrivals,
            proxy_headers=self._config.ha_proxy_protocol_enabled,
        )
        if arrivals is not None:
            self._arrivals.append(arrivals)
        opened = listener.open(self._config.bind_address, port, self._config.accept_backlog)
        self._listeners.append(listener)
        return opened

    def _handshakes(self, target: str) -> Arrivals:
        def became_client(arrival: Arrival) -> ClientConnection:
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
