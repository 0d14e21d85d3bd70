"""The connection log: a line when a client's CONNECT is accepted, and one when a connection ends, for some of them.

Rules: off unless `connectionLogPercent` says otherwise. The id of a connection decides whether its lines are written,
so both are there or neither, and nothing is remembered of a connection for them. Lines have a rate (`LineRate`), and a
line says how many were left out before it. No line has credentials, and principals are shown as in the rest of the log.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from proxy.core.errors import DisconnectCause
from proxy.core.log import LineRate, Logger
from proxy.relay.engine import Direction, Relay

if TYPE_CHECKING:
    from proxy.clients.connection import ClientConnection
    from proxy.net.tls.arrivals import Arrival

Session: TypeAlias = "ClientConnection | Relay | Arrival"
CONNECTED: Final = "client connected"
ENDED: Final = "connection ended"
HANDSHAKE: Final = "handshake"
LOOKUP: Final = "lookup"
RELAY: Final = "relay"
_LONGEST_NAME: Final = 200
# An odd number near 2**32 times the golden ratio: ids in a row are spread evenly over all numbers below 2**32.
_SPREAD: Final = 0x9E3779B1
_NUMBERS: Final = 1 << 32


class Ended(NamedTuple):
    """A connection that is over, as it stood in the books: its address, id, accept (loop time), and mode."""

    address: str
    number: int
    since: float
    mode: str


class ConnectionLog:
    """Writes the lines; `names` shows principals."""

    def __init__(self, log: Logger, names: Callable[[object], str], percent: float) -> None:
        self._log = log
        self._names = names
        self._rate = LineRate()
        self._below = 0
        self.apply(percent)

    def apply(self, percent: float) -> None:
        """Apply the share of connections that are logged."""
        self._below = int(percent / 100 * _NUMBERS)

    @property
    def active(self) -> bool:
        """Whether any connection is logged."""
        return self._below > 0

    def logs(self, number: int) -> bool:
        """Return whether the connection with this id is logged."""
        return number * _SPREAD % _NUMBERS < self._below

    def connected(self, number: int, client: "ClientConnection", mode: str, now: float) -> None:
        """Write the line of an accepted CONNECT; in the mode `relay` a broker is connected next."""
        if self.logs(number) and self._rate.due(now):
            self._write(CONNECTED, number, client.name, client.principal, client.client_version, mode)

    def ended(self, session: Session, ended: Ended, cause: DisconnectCause, now: float) -> None:
        """Write the line of a connection that is over, with its cause, what it moved and how long it lasted."""
        if not self.logs(ended.number) or not self._rate.due(now):
            return
        more: dict[str, Any] = {"cause": str(cause), "seconds": round(now - ended.since, 3)}
        if ended.mode == RELAY:
            relay = cast("Relay", session)
            moved = relay.snapshot().moved
            more |= {
                "broker": relay.broker_name,
                "bytes_from_client": moved[Direction.TO_BROKER],
                "bytes_to_client": moved[Direction.TO_CLIENT],
            }
            self._write(ENDED, ended.number, relay.client_name, relay.principal, None, RELAY, **more)
            return
        client = cast("ClientConnection | Arrival", session)
        if client.output is not None:
            more |= {"bytes_from_client": client.received_bytes, "bytes_to_client": client.output.sent_bytes}
            version = client.client_version
            self._write(ENDED, ended.number, client.name, client.principal, version, ended.mode, **more)
        else:
            # A client in its TLS handshake: nothing was read of it.
            more |= {"bytes_from_client": 0, "bytes_to_client": 0}
            self._write(ENDED, ended.number, client.name, None, None, ended.mode, **more)

    def _write(
        self, event: str, number: int, client: str, principal: object, version: str | None, mode: str, **more: object
    ) -> None:
        fields: dict[str, object] = {"connection": number, "client": client, "mode": mode}
        if principal is not None:
            fields["principal"] = self._names(principal)[:_LONGEST_NAME]
        if version is not None:
            fields["client_version"] = version[:_LONGEST_NAME]
        if left_out := self._rate.take_left_out():
            more["connections_since_last_line"] = left_out
        self._log.info(event, **fields, **more)
