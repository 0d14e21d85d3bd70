"""Keys of one site share a turn: somebody who has thousands of keys has one part of what is shared, as all others have.

A network of 64 bits is a key of many users, and a customer may have 65,536 of them. Plain keys are their own sites.
"""

from collections.abc import Hashable
from typing import Self

__all__ = ["SiteKey", "path_of", "site_of"]


class SiteKey(str):
    """A key that belongs to a site; it equals its own text."""

    __slots__ = ("site",)

    site: str

    def __new__(cls, text: str, site: str) -> Self:
        """Return the key `text` of `site`."""
        key = super().__new__(cls, text)
        key.site = site
        return key


def site_of(key: Hashable) -> Hashable:
    """Return the site of a key, which for most keys is the key."""
    return key.site if isinstance(key, SiteKey) else key


def path_of(key: Hashable) -> tuple[Hashable, ...]:
    """Return the path of a key in a `limiter.fair_line`: a key that is its own site is alone in it."""
    return (key.site, key) if isinstance(key, SiteKey) else (key,)
