"""Count TLS handshakes and changes of certificates."""

from collections.abc import Callable, Mapping

from proxy.core.counters import RoomCounters, SharedCounters


class TlsCounters(RoomCounters):
    """Counters of TLS; `expiries` returns the seconds until each certificate of this proxy expires.

    `list_expiries` returns the seconds until the revocation lists of each context expire.
    """

    __slots__ = ("expiries", "handshakes", "handshakes_in_flight", "handshakes_waiting", "list_expiries", "reloads")

    def __init__(self, shared: SharedCounters | None = None) -> None:
        super().__init__(shared)
        self.handshakes: dict[tuple[str, str], int] = dict.fromkeys((("client", "done"), ("broker", "done")), 0)
        self.handshakes_in_flight = 0
        self.handshakes_waiting = 0
        self.reloads: dict[str, int] = dict.fromkeys(("applied", "refused"), 0)
        self.expiries: Callable[[], Mapping[str, float]] = dict
        self.list_expiries: Callable[[], Mapping[str, float]] = dict

    def handshake(self, peer: str, result: str) -> None:
        """Count the end of a handshake with a client or a broker."""
        self.handshakes[peer, result] = self.handshakes.get((peer, result), 0) + 1
