"""Share a rate of requests among keys, none of which uses up the part of others; no I/O, no clock.

A token bucket with the requests of one second, and a reserve beside them. Rules:
- The rate is that of all keys together: a key alone has all of it, but for the reserve.
- The reserve is for keys below their share: the rate by the number of keys that have had requests lately, and one more.
  So a newcomer is served whatever others have taken.
- The networks of an IPv6 site count as one key. A quarter of a site's share, one request at least, is for its
  networks below their part, which is the site's share by their number, and one more. So a network leaves its neighbours
  something.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from limiter.sites import SiteKey, site_of
from proxy.core.key_members import KeySizes

# The part of a second's requests that is kept in the reserve, one request at least; and of a site's share for those of
# its networks that have had little.
RESERVE_PART: Final = 4
# A key counts for at most two seconds of its share, and is forgotten when it has had nothing for as long.
_MOST_SECONDS: Final = 2.0
# Where the share is below one request in two seconds, a key is forgotten by this rate (or that of all, if it is less).
_LEAST_SHARE: Final = 0.5
# The books of so many keys; the one that has had nothing for the longest is forgotten first.
MOST_KEYS: Final = 4096


class _Uses:
    """The requests of each key above its share, and the time of the last one; the latest key last."""

    __slots__ = ("_uses", "sizes")

    def __init__(self) -> None:
        self._uses: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        # How many keys there are of each site.
        self.sizes: KeySizes[Hashable] = KeySizes()

    def __len__(self) -> int:
        return len(self._uses)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._uses

    def used(self, key: Hashable, drained: float, now: float) -> float:
        """Return what a key has used above `drained` a second."""
        used, at = self._uses.get(key, (0.0, now))
        return max(0.0, used - (now - at) * drained)

    def note(self, key: Hashable, used: float, now: float) -> None:
        """Record what a key has used."""
        if key not in self._uses:
            self.sizes.grow(site_of(key))
        self._uses[key] = used, now
        self._uses.move_to_end(key)
        if len(self._uses) > MOST_KEYS:
            self._forget_first()

    def forget(self, drained: float, now: float) -> None:
        """Forget the keys that have used nothing any more; those that had something later may be forgotten later."""
        while self._uses and self.used(next(iter(self._uses)), drained, now) <= 0:
            self._forget_first()

    def _forget_first(self) -> None:
        key, _ = self._uses.popitem(last=False)
        self.sizes.shrink(site_of(key))


class SharedRate:
    """Tokens for requests, `rate` a second; `rate` may be changed by `apply`."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._left = self._capacity
        self._filled_at = now
        self._sites = _Uses()
        self._networks = _Uses()

    def __len__(self) -> int:
        return len(self._sites) + len(self._networks)

    def apply(self, rate: float) -> None:
        """Change the rate."""
        self._rate = rate

    def take(self, key: Hashable, now: float) -> bool:
        """Take a token for a request of `key`; return False if it has to come later."""
        site = site_of(key)
        self._left = min(self._capacity, self._left + (now - self._filled_at) * self._rate)
        self._filled_at = now
        self._sites.forget(self._drain(self._rate / (len(self._sites) + 1)), now)
        share = self._rate / (len(self._sites) + (site not in self._sites) + 1)
        used = self._sites.used(site, self._drain(share), now)
        least = max(1.0, share)
        part, had = self._inside(key, site, share, now)
        # A network above its part leaves some of the share of its site to its neighbours.
        most = least if had <= max(1.0, part) - 1 else least - max(1.0, least / RESERVE_PART)
        below = used <= most - 1
        if self._left < 1 + (0.0 if below else self._reserve):
            return False
        self._left -= 1
        if below or not isinstance(key, SiteKey):
            used = min(used + 1, _MOST_SECONDS * least)
        self._sites.note(site, used, now)
        if isinstance(key, SiteKey):
            self._networks.note(key, min(had + 1, _MOST_SECONDS * max(1.0, part)), now)
        return True

    def _inside(self, key: Hashable, site: Hashable, share: float, now: float) -> tuple[float, float]:
        """Return the part of a network in the share of its site, and what the network has had of it; a key without
        neighbours has all.
        """
        if not isinstance(key, SiteKey):
            return share, 0.0
        networks = self._networks
        networks.forget(self._drain(share / (networks.sizes.most + 1)), now)
        part = share / (networks.sizes[site] + (key not in networks) + 1)
        return part, networks.used(key, self._drain(part), now)

    @property
    def _reserve(self) -> float:
        return max(1.0, self._rate / RESERVE_PART)

    @property
    def _capacity(self) -> float:
        return max(1.0, self._rate) + self._reserve

    def _drain(self, share: float) -> float:
        return max(share, min(self._rate, _LEAST_SHARE))
