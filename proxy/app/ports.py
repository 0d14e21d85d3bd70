"""The ports for Pulsar clients: plain, with TLS, a Unix socket, and ports that each lead to a fixed broker."""

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from protocol.proxy_header import ProxyHeader
from proxy.brokers.sockets import Sockets
from proxy.brokers.target import BrokerAddress
from proxy.clients.connection import ClientConnection
from proxy.clients.listener import Listener
from proxy.clients.sessions import Sessions
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.core.version import VERSION
from proxy.net.listen.listening import PortPurpose, port_of
from proxy.net.proxy_headers import HeaderWaits
from proxy.relay.threads import RelayThreads

if TYPE_CHECKING:
    from proxy.net.tls.arrivals import Arrival, Arrivals

# A client that was accepted right before another process took over has this long to send its PROXY header.
HEADER_SECONDS: Final = 1.0
# Connections that the kernel keeps until they are accepted: a storm of clients that were dropped comes within a second.
# net.core.somaxconn bounds it, whatever is asked for.
ACCEPT_BACKLOG: Final = 4096
# Arguments: the address, the PROXY header, and the broker to which the port leads ("": none).
MakeClient = Callable[[str, ProxyHeader | None, str], ClientConnection]


class ClientPorts:
    """Accepts clients on every port until closed."""

    def __init__(
        self,
        core: Core,
        sockets: Sockets,
        sessions: Sessions,
        threads: RelayThreads,
        make_client: MakeClient,
    ) -> None:
        self._core = core
        self._listening = sockets.listening
        self._sockets = sockets
        self._sessions = sessions
        self._log = core.log.of("clients")
        self._threads = threads
        self._make_client = make_client
        self._listeners: list[Listener] = []
        self._waits = HeaderWaits(core.counters)
        # The openers of the sockets of each port, and the listeners that accept from them, in the same order.
        self._ports: list[tuple[Callable[[], list[socket.socket]], list[Listener]]] = []
        self._arrivals: list[Arrivals] = []
        # The last client that came without a bound; None while no bound is set.
        self._bounded_after: int | None = None
        self._received = 0
        self._handed_over = False
        self.port = 0
        self.tls_port = 0

    def open(self) -> None:
        """Listen on the configured ports; raises OSError if a port cannot be bound."""
        config = self._core.config
        if config.service_port is not None:
            self.port = self._open(config.service_port, tls=False)
        if config.service_port_tls is not None:
            self.tls_port = self._open(config.service_port_tls, tls=True)
        if config.service_socket_path:
            purpose, mode = PortPurpose(Config.service_socket_path.name), int(config.service_socket_mode, 8)
            path, backlog = config.service_socket_path, ACCEPT_BACKLOG

            def listen() -> list[socket.socket]:
                return [self._listening.listen_at(path, mode, purpose, backlog)]

            self._accept(listen(), "", listen)

    def log_ports(self) -> None:
        """Log where clients are accepted, and how many threads relay them."""
        config, threads, log = self._core.config, self._threads, self._log
        host = ",".join(config.bind_address)
        runs = {"version": VERSION, "relay_threads": threads.count, "relay_threads_reason": threads.reason}
        if self.port:
            log.info("listening for clients", host=host, port=self.port, **runs)
        if self.tls_port:
            log.info("listening for clients with tls", host=host, tls_port=self.tls_port, **runs)
        if config.service_socket_path:
            log.info("listening for clients of this machine", path=config.service_socket_path, **runs)

    def open_for_broker(self, port: int, broker: BrokerAddress, tls: bool) -> int:
        """Listen on `port` and relay its clients to `broker`; return the port. Raises OSError if it cannot be bound."""
        return self._open(port, tls=tls, target=str(broker))

    def stop_accepting(self) -> None:
        """Leave newcomers to the process that has taken over the listening sockets; accepted clients go on."""
        self._handed_over = True
        for listener in self._listeners:
            listener.stop_accepting()

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
        # All at once: `reopen` finds all open or all closed.
        for listener in self._listeners:
            listener.stop_accepting()
        for listener in self._listeners:
            await listener.close(HEADER_SECONDS if self._handed_over else 0.0)

    def reopen(self) -> None:
        """Listen again on all ports after `close`; raises OSError, and then none of them listens again."""
        opened: list[tuple[Listener, socket.socket]] = []
        try:
            for listen, listeners in self._ports:
                # A drain that has not begun has closed nothing.
                if not any(listener.listening for listener in listeners):
                    opened += zip(listeners, listen(), strict=True)
        except OSError:
            for _, listening in opened:
                listening.close()
            raise
        for listener, listening in opened:
            listener.adopt(listening)
            if self._received:
                listener.bound_received(self._received)

    async def end(self) -> None:
        """Abort the TLS handshakes that are in progress after the drain."""
        for arrivals in self._arrivals:
            await arrivals.close()

    def _open(self, port: int, *, tls: bool, target: str = "") -> int:
        config = self._core.config
        key = Config.service_port_tls if tls else Config.service_port
        purpose = PortPurpose(Config.http_lookup_ports.name if target else key.name, target, tls)
        opened = self._listening.listen(config.bind_address, port, purpose, ACCEPT_BACKLOG)
        arrivals = self._handshakes(target) if tls else None
        if arrivals is not None:
            self._arrivals.append(arrivals)
        opened_port = port_of(opened[0])

        def listen() -> list[socket.socket]:
            return self._listening.listen(config.bind_address, opened_port, purpose, ACCEPT_BACKLOG)

        self._accept(opened, target, listen, arrivals)
        return opened_port

    def _accept(
        self,
        opened: list[socket.socket],
        target: str,
        listen: Callable[[], list[socket.socket]],
        arrivals: "Arrivals | None" = None,
    ) -> None:
        """Accept clients from the sockets of one port: all have the same places for TLS handshakes.

        `listen` opens them again after a drain that was undone.
        """
        first = len(self._listeners)
        for listening in opened:
            listener = Listener(
                self._core,
                self._sessions,
                self._sockets.options,
                lambda address, header: self._make_client(address, header, target),
                self._waits,
                arrivals,
            )
            listener.adopt(listening)
            if self._received:
                listener.bound_received(self._received)
            self._listeners.append(listener)
        self._ports.append((listen, self._listeners[first:]))

    def _handshakes(self, target: str) -> "Arrivals":
        # Only a port with TLS needs this.
        from proxy.net.tls.arrivals import Arrivals

        def became_client(arrival: "Arrival") -> ClientConnection:
            client = self._make_client(arrival.client_address, arrival.header, target)
            self._sessions.became_client(arrival, client)
            return client

        tls, current = self._sockets.tls, self._sockets.tls_files.server
        return Arrivals(self._core, tls, current, became_client, self._sessions.ended, self._log)
