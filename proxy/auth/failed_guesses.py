"""The pairs of network and user whose passwords were wrong, and the networks that sent them.

Rule: a wrong password delays its own pair only: by `FIRST_DELAY_SECONDS`, twice as long after each further one, at most
`LONGEST_DELAY_SECONDS`. A network that sent wrong passwords, and the site that the network belongs to, lose their
precedence over those that sent none, and nothing else. All of it is forgotten `FORGET_SECONDS` after the last wrong
password. No I/O and no clock.
"""

import hashlib
import secrets
from collections import OrderedDict
from typing import Final, NamedTuple

from proxy.core.addresses import claimed, host_network, site_network

FIRST_DELAY_SECONDS: Final = 0.25
LONGEST_DELAY_SECONDS: Final = 2.0
FORGET_SECONDS: Final = 60.0
MOST_PAIRS: Final = 16_384
MOST_NETWORKS: Final = 4096
MOST_FORGOTTEN_AT_ONCE: Final = 64
# The site and the network of clients whose address is none. Text in X-Forwarded-For costs nothing: all of it is one.
_NO_ADDRESS: Final = "?"
_DIGEST_BYTES: Final = 16


class Pair(NamedTuple):
    """A network, the site it belongs to, and a user (as a keyed digest: clients choose the length of the name)."""

    site: str
    network: str
    user: bytes


class _Failures(NamedTuple):
    number: int
    last_at: float


class FailedGuesses:
    """Wrong passwords of the last minute, in tables of bounded size."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(_DIGEST_BYTES)
        # Both in the order of the last wrong password.
        self._pairs: OrderedDict[Pair, _Failures] = OrderedDict()
        self._networks: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pairs)

    def pair_of(self, client: str, user: str) -> Pair:
        """Return the pair of a client (`address:port`) and the user that the client names."""
        digest = hashlib.blake2b(user.encode(), key=self._secret, digest_size=_DIGEST_BYTES).digest()
        return Pair(*networks_of(client), digest)

    def failed(self, pair: Pair, now: float) -> None:
        """Record a wrong password."""
        self._forget_old(now)
        number = self._pairs[pair].number + 1 if self.pair_has_failed(pair, now) else 1
        self._pairs.pop(pair, None)
        self._pairs[pair] = _Failures(number, now)
        if len(self._pairs) > MOST_PAIRS:
            self._pairs.popitem(last=False)
        # An IPv4 address is the same key twice. The site comes last: the networks of a site must not push the site out.
        for network in (pair.network, pair.site):
            self._networks.pop(network, None)
            self._networks[network] = now
        while len(self._networks) > MOST_NETWORKS:
            self._networks.popitem(last=False)

    def proven(self, pair: Pair) -> None:
        """Forget the wrong passwords of a pair, because a right one was given."""
        self._pairs.pop(pair, None)

    def pair_has_failed(self, pair: Pair, now: float) -> bool:
        """Return whether the pair gave a wrong password that is not forgotten."""
        known = self._pairs.get(pair)
        return known is not None and now < known.last_at + FORGET_SECONDS

    def network_has_failed(self, network: str, now: float) -> bool:
        """Return whether a wrong password of the network, or of the site, is not forgotten."""
        last_at = self._networks.get(network)
        return last_at is not None and now < last_at + FORGET_SECONDS

    def delayed_until(self, pair: Pair) -> float:
        """Return the moment before which no password of the pair is checked; 0 if the pair has not failed."""
        known = self._pairs.get(pair)
        if known is None:
            return 0.0
        doublings = min(known.number - 1, 16)
        return known.last_at + min(FIRST_DELAY_SECONDS * (1 << doublings), LONGEST_DELAY_SECONDS)

    def _forget_old(self, now: float) -> None:
        """Drop the oldest entries that are no longer counted, a bounded number."""
        before = now - FORGET_SECONDS
        for _ in range(MOST_FORGOTTEN_AT_ONCE):
            if not self._pairs or next(iter(self._pairs.values())).last_at > before:
                break
            self._pairs.popitem(last=False)
        for _ in range(MOST_FORGOTTEN_AT_ONCE):
            if not self._networks or next(iter(self._networks.values())) > before:
                break
            self._networks.popitem(last=False)


def networks_of(client: str) -> tuple[str, str]:
    """Return the site and the network of `address:port`: of an IPv6 address its /48 and its /64, else the address.

    A network of IPv6 is a key that knows its site (`limiter.sites`).
    """
    # X-Forwarded-For may hold any text, and some balancers add the port of their client.
    address = claimed(client.rpartition(":")[0].removeprefix("[").removesuffix("]"))
    if address is None:
        return _NO_ADDRESS, _NO_ADDRESS
    site, network = site_network(address), host_network(str(address))
    # Pairs are kept by the thousand, so equal texts are one object.
    return (site, site) if site == network else (site, network)
