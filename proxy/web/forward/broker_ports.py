"""Open a port of this proxy for each broker that HTTP lookups name: clients of that port are relayed to that broker.

Rules: a port is opened when a broker's answer first names its broker, so the number of ports is bounded by the cluster
and by `httpLookupPorts`. Ports stay open until shutdown. When a client connects, its target is checked like any other.
"""

from collections.abc import Callable
from typing import Final

from proxy.brokers.known_brokers import KnownBrokers
from proxy.brokers.target import BrokerAddress, parse_address
from proxy.config.core import Core
from proxy.config.keys.networks import is_loopback
from proxy.core.errors import TargetRefused
from proxy.core.log import LinePace
from proxy.web.forward.lookup_answers import lookup_in, rewritten
from proxy.web.http.origins import host_of

MOST_CHOSEN_BY_THE_KERNEL: Final = 64

# Listens on a port (0: any free port) for clients of a broker, with or without TLS, and returns the port.
OpenPort = Callable[[int, BrokerAddress, bool], int]


class BrokerPorts:
    """The ports of brokers, and the lookup answers that name them.

    The ports are those of `httpLookupPorts`. Without any, the kernel chooses ports if only programs of this machine
    connect, so that no firewall needs to know them; else answers are passed on as they are. Where clients are not
    served without TLS, or with it, such ports for brokers are not opened either.
    """

    def __init__(self, core: Core, open_port: OpenPort, known: KnownBrokers | None = None) -> None:
        config = core.config
        # Records the brokers that answers name.
        self._known = known
        chosen = MOST_CHOSEN_BY_THE_KERNEL if all(map(is_loopback, config.bind_address)) else 0
        self._free = list(config.http_lookup_ports) or [0] * chosen
        self._open_port = open_port
        self._clock = core.clock
        self._log = core.log.of("clients")
        self._advertised = config.advertised_address
        self._tls_to_brokers = config.tls_enabled_with_broker
        self._plain_ports = config.service_port is not None
        self._tls_ports = config.service_port_tls is not None
        self._opened: dict[tuple[BrokerAddress, bool], int] = {}
        self._pace = LinePace()
        self._web_ports: tuple[int | None, int | None] = (None, None)

    def web_opened(self, port: int | None, tls_port: int | None) -> None:
        """Called when the web ports are open, which answers name in place of a broker's."""
        self._web_ports = port, tls_port

    def rewritten(self, answer: bytes, host_header: str) -> bytes:
        """Return a lookup's answer with this proxy's addresses; `host_header` is the client's name for this proxy."""
        lookup = lookup_in(answer, tls_to_brokers=self._tls_to_brokers)
        if lookup is None:
            return answer
        if self._known is not None:
            self._known.note_url(lookup.broker)
        host = self._advertised or host_of(host_header)
        if not host or not (self._free or self._opened):
            return answer
        ports = self._port_of(lookup.broker, False), self._port_of(lookup.broker, True)
        return rewritten(answer, lookup, host, ports, self._web_ports)

    def _port_of(self, url: str, tls: bool) -> int | None:
        """Return the port for a broker's URL, opened if necessary; None if no port is available."""
        if not (self._tls_ports if tls else self._plain_ports):
            return None
        try:
            broker = parse_address(url.replace("pulsar+ssl://", "pulsar://"), "a lookup's answer")
        except TargetRefused:
            return None
        port = self._opened.get((broker, tls))
        if port is None:
            port = self._open(broker, tls)
        return port

    def reopen(self, port: int, target: str, *, tls: bool) -> None:
        """Use a port that the process before this one has handed over; raises OSError.

        A port that the configuration no longer has is not opened.
        """
        broker = parse_address(target, "a port that was handed over")
        place = next((place for place in (port, 0) if place in self._free), None)
        if place is not None and (broker, tls) not in self._opened:
            self._free.remove(place)
            self._opened[broker, tls] = self._open_port(port, broker, tls)

    def _open(self, broker: BrokerAddress, tls: bool) -> int | None:
        while self._free:
            wanted = self._free.pop(0)
            try:
                port = self._open_port(wanted, broker, tls)
            except OSError as error:
                self._warn(broker, str(error))
                continue
            self._opened[broker, tls] = port
            self._log.info("listening for clients of one broker", broker=str(broker), port=port)
            return port
        self._warn(broker, "no port is left")
        return None

    def _warn(self, broker: BrokerAddress, reason: str) -> None:
        if self._pace.due(self._clock()):
            self._log.warning(
                "http lookup answered with a broker's own address", broker=str(broker), reason=reason,
                change="httpLookupPorts",
            )  # fmt: skip
