"""Remember the brokers that lookup answers and redirects of known brokers have named. No I/O, no clock of its own.

Rule: only answers of brokers that may get secret credentials are noted, so that a foreign host cannot make
itself, or another host, known.

The hosts are remembered longer than the right to credentials: a host that a broker has named at any time is resolved
apart from the names that clients make up (`proxy.brokers.resolver.TargetNames`), also where no credentials are secret.
"""

from collections.abc import Callable
from typing import Final

from proxy.brokers.target import BrokerAddress, parse_address
from proxy.core.errors import TargetRefused

MOST_KNOWN: Final = 1024
# A client connects within seconds of its lookup, and looks its topic up again before each new attempt.
KNOWN_SECONDS: Final = 60.0
LONGEST_HOST: Final = 253


class KnownBrokers:
    """The hosts and ports that brokers named within the last `KNOWN_SECONDS`, at most `MOST_KNOWN`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # In the order in which the entries expire.
        self._until: dict[tuple[str, int], float] = {}
        # In the order in which they were named last.
        self._hosts: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, broker: BrokerAddress) -> bool:
        return self._until.get((broker.host.lower(), broker.port), 0.0) > self._clock()

    def named(self, host: str) -> bool:
        """Return whether a known broker has named `host`, of the `MOST_KNOWN` named last."""
        return host.lower() in self._hosts

    def note(self, broker: BrokerAddress) -> None:
        """Record that a known broker has named `broker`; if the table is full, the oldest entry leaves."""
        if len(broker.host) > LONGEST_HOST:
            return
        place, now = (broker.host.lower(), broker.port), self._clock()
        self._until.pop(place, None)
        while self._until and (len(self._until) >= MOST_KNOWN or next(iter(self._until.values())) <= now):
            del self._until[next(iter(self._until))]
        self._until[place] = now + KNOWN_SECONDS
        self._hosts.pop(place[0], None)
        if len(self._hosts) >= MOST_KNOWN:
            del self._hosts[next(iter(self._hosts))]
        self._hosts[place[0]] = None

    def note_url(self, url: str) -> None:
        """Record the broker of a URL in a lookup answer; skip a URL that is no address of a broker."""
        try:
            self.note(parse_address(url, tls=True))
        except TargetRefused:
            return
