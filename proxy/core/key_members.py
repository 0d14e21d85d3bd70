"""Members by key, and the key with most of them: who gives way when there is no more room.

A key is an address, a network or a principal. No key has a limit of its own: behind a balancer or NAT all clients may
have the same one. Sites are compared first, then the keys of a site: a customer with a /48 has 65,536 networks of 64
bits, none of which has much (`limiter.sites`; most keys are their own sites). Each step is O(1). No I/O and no clock
here.
"""

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from limiter.sites import SiteKey, site_of

K = TypeVar("K", bound=Hashable)
M = TypeVar("M", bound=Hashable)


class KeySizes(Generic[K]):
    """How many members each key has, and the keys with most; a key without members is forgotten."""

    __slots__ = ("_keys_of", "_sizes", "most")

    def __init__(self) -> None:
        self._sizes: dict[K, int] = {}
        self._keys_of: dict[int, dict[K, None]] = {}
        # The size of the largest key; 0 without any.
        self.most = 0

    def __getitem__(self, key: K) -> int:
        return self._sizes.get(key, 0)

    def __len__(self) -> int:
        return len(self._sizes)

    def grow(self, key: K) -> None:
        """Count one member more."""
        self._resize(key, self[key] + 1)
        self.most = max(self.most, self[key])

    def shrink(self, key: K) -> None:
        """Count one member less, of a key that has some."""
        self._resize(key, self[key] - 1)
        if self.most not in self._keys_of:
            # The key that had most has one less now.
            self.most -= 1

    def largest(self) -> Iterator[K]:
        """Yield the keys with most members; the first of them has had so many for the longest time."""
        return iter(self._keys_of.get(self.most, ()))

    def defer(self, key: K) -> None:
        """Make a key the last of those with as many members."""
        if key in self._sizes:
            same = self._keys_of[self._sizes[key]]
            del same[key]
            same[key] = None

    def _resize(self, key: K, size: int) -> None:
        before = self._sizes.pop(key, 0)
        if before:
            same = self._keys_of[before]
            del same[key]
            if not same:
                del self._keys_of[before]
        if size:
            self._sizes[key] = size
            self._keys_of.setdefault(size, {})[key] = None


class SiteSizes(Generic[K]):
    """How many members each site has, and each key inside its site."""

    __slots__ = ("_inside", "_sites")

    def __init__(self) -> None:
        self._sites: KeySizes[Hashable] = KeySizes()
        # By site: the sizes of its keys, if it has others than itself.
        self._inside: dict[Hashable, KeySizes[K]] = {}

    def __getitem__(self, key: K) -> int:
        """Return how many members the site of a key has."""
        return self._sites[site_of(key)]

    def __len__(self) -> int:
        """Return how many sites have members."""
        return len(self._sites)

    @property
    def most(self) -> int:
        """Return the size of the largest site; 0 without any."""
        return self._sites.most

    def inside(self, key: K) -> int:
        """Return how many members the key alone has."""
        site = site_of(key)
        return self._inside[site][key] if site in self._inside else self._sites[site]

    def within(self, key: K) -> KeySizes[K] | None:
        """Return the sizes of the keys of a key's site, if it has others than itself."""
        return self._inside.get(site_of(key))

    def grow(self, key: K) -> None:
        """Count one member more."""
        self._sites.grow(site_of(key))
        if isinstance(key, SiteKey):
            self._inside.setdefault(key.site, KeySizes()).grow(key)

    def shrink(self, key: K) -> None:
        """Count one member less, of a key that has some."""
        self._sites.shrink(site_of(key))
        if isinstance(key, SiteKey):
            inside = self._inside[key.site]
            inside.shrink(key)
            if not len(inside):
                del self._inside[key.site]

    def largest(self) -> Iterator[K]:
        """Yield the keys with most members of each site with most."""
        for site in self._sites.largest():
            yield from self._largest_of(site)

    def outweighing(self, key: K | None, factor: int, totals: "SiteSizes[K] | None" = None) -> Iterator[K]:
        """Yield the keys with most of a site that gives way to one member more of `key` (None: it has nothing).

        Such a site has more than `factor` times what the site of `key` then has in `totals` (None: here). Without one,
        the site of `key` is such a site, if one of its keys has so much more than `key`.
        """
        totals = self if totals is None else totals
        own = 0 if key is None else totals[key]
        if self.most > factor * (own + 1):
            yield from self._largest_of(next(self._sites.largest()))
        elif isinstance(key, SiteKey) and key.site in self._inside:
            inside = self._inside[key.site]
            if inside.most > factor * (totals.inside(key) + 1):
                yield from inside.largest()

    def defer(self, key: K) -> None:
        """Make a key the last of those of its site with as many members."""
        if isinstance(key, SiteKey) and key.site in self._inside:
            self._inside[key.site].defer(key)

    def _largest_of(self, site: Hashable) -> Iterator[K]:
        inside = self._inside.get(site)
        # A site without others than itself is the key.
        return iter((site,)) if inside is None else inside.largest()  # type: ignore[arg-type]


class KeyMembers(Generic[K, M]):
    """Members by key; those of a key are in the order in which they came."""

    __slots__ = ("_key_of", "_members", "sizes")

    def __init__(self) -> None:
        self.sizes: SiteSizes[K] = SiteSizes()
        self._key_of: dict[M, K] = {}
        self._members: dict[K, dict[M, None]] = {}

    def __len__(self) -> int:
        return len(self._key_of)

    def __iter__(self) -> Iterator[M]:
        return iter(self._key_of)

    def __contains__(self, member: M) -> bool:
        return member in self._key_of

    def add(self, key: K, member: M) -> None:
        """Add a member that is not there yet."""
        self._key_of[member] = key
        self._members.setdefault(key, {})[member] = None
        self.sizes.grow(key)

    def remove(self, member: M) -> bool:
        """Remove a member; return False if it is not there."""
        if member not in self._key_of:
            return False
        key = self._key_of.pop(member)
        members = self._members[key]
        del members[member]
        if not members:
            del self._members[key]
        self.sizes.shrink(key)
        return True

    def of(self, key: K) -> dict[M, None]:
        """Return the members of a key, the longest first; the caller changes nothing in it."""
        return self._members.get(key, {})

    def largest(self) -> Iterator[dict[M, None]]:
        """Yield the members of each key with most, of each site with most."""
        return (self._members[key] for key in self.sizes.largest())
