"""The traffic of one relay, for every engine: its bytes, rates, idle time and age. No I/O, no clock."""

from collections.abc import Callable
from typing import Final, NamedTuple

from proxy.core.counters import BINARY_BYTES, Counters, counter_by
from proxy.net import ended_sockets

RELAY_BYTES: Final = counter_by(
    "direction",
    "relay_bytes",
    "Bytes relayed between clients and brokers, by direction.",
    ("to_broker", "to_client"),
    "bytes",
)


class RelayRates(NamedTuple):
    """Reads of the client's socket and their bytes, per second between the last two ticks."""

    reads: float
    size_bytes: float


class RelayTraffic:
    """The traffic of a relay that began at `now`; an engine adds the bytes that it has moved."""

    __slots__ = (
        "_counters",
        "_idle_since",
        "_rated_bytes",
        "_rated_reads",
        "_rates_since",
        "_seen",
        "_seen_at_retire",
        "_untaken",
        "rates",
        "read_timeout_seconds",
        "to_broker_bytes",
        "to_client_bytes",
    )

    def __init__(self, counters: Counters, now: float, read_timeout_seconds: float) -> None:
        self._counters = counters
        self._idle_since = self._rates_since = now
        self._seen = self._rated_bytes = self._rated_reads = 0
        self._seen_at_retire = -1
        # Bytes that the peers had still to take at the last look; 0 if nobody has looked since a byte was read.
        self._untaken = 0
        self.read_timeout_seconds = read_timeout_seconds
        self.to_broker_bytes = self.to_client_bytes = 0
        self.rates = RelayRates(0.0, 0.0)

    def add(self, to_broker: int, to_client: int) -> None:
        """Count bytes that have moved since the last call."""
        counters = self._counters
        by_direction = counters[RELAY_BYTES]
        by_direction["to_broker"] += to_broker
        by_direction["to_client"] += to_client
        counters[BINARY_BYTES].value += to_broker + to_client
        self.to_broker_bytes += to_broker
        self.to_client_bytes += to_client

    def tick(self, now: float, reads: int, untaken: Callable[[], int], *, paused: bool, half_open: bool) -> bool:
        """Take the rates, with `reads` of the client's socket in all; return whether the read time-out is over.

        The time-out begins anew with each byte that is read or taken, and with the end of a pause of ours. `untaken`
        tells the bytes that both peers have still to take; in the second half of the time-out it is asked at each tick.
        Without a time-out a relay of which one side has sent its FIN has the longest time of an ended socket.
        """
        seconds = now - self._rates_since
        if seconds > 0:
            moved = self.to_broker_bytes - self._rated_bytes
            self.rates = RelayRates((reads - self._rated_reads) / seconds, moved / seconds)
            self._rates_since, self._rated_bytes, self._rated_reads = now, self.to_broker_bytes, reads
        if paused or self._seen != self._moved:
            self._seen, self._idle_since, self._untaken = self._moved, now, 0
            return False
        timeout = self.read_timeout_seconds or (ended_sockets.LONGEST_SECONDS if half_open else 0.0)
        if not timeout or now - self._idle_since < timeout / 2:
            return False
        before, self._untaken = self._untaken, untaken()
        if self._untaken < before:
            self._idle_since = now
        return timeout <= now - self._idle_since

    def pause_ended(self, now: float) -> None:
        """Begin the read time-out anew: no byte could move while a reason of ours paused the relay."""
        self._idle_since = now

    def idle_since_retire(self) -> bool:
        """Return whether no byte has moved since the last call; False at the first."""
        before, self._seen_at_retire = self._seen_at_retire, self._moved
        return before == self._moved

    @property
    def _moved(self) -> int:
        return self.to_broker_bytes + self.to_client_bytes
