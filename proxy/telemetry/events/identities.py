"""Identities in events: keyed hashes instead of names, unless the operator wants the names.

Rule: principals, client addresses and patterns leave this module as hashes only; with `eventLogIdentities=plain`
principals and addresses leave as they are, the texts of requests never do. The hashes are keyed, because patterns and
roles could be guessed otherwise. Equal texts of two kinds have different hashes. Caches are bounded in number and
length.
"""

import os
from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Final

from proxy.auth.identity import Principal

__all__ = ["LONGEST_VERSION", "EventIdentities", "bounded", "key_of"]

# 64 bits: among a million principals two share one with a probability of 3 in 100 million.
DIGEST_BYTES: Final = 8
# A hash costs a microsecond: what is remembered is worth no more memory.
REMEMBERED: Final = 512
# Longer texts are hashed each time and never cached: a client chooses the length of its pattern.
LONGEST_REMEMBERED: Final = 256
LONGEST_VERSION: Final = 64
LONGEST_NAMESPACE: Final = 256
LONGEST_IDENTITY: Final = 256
_KEY_BYTES: Final = 32


def key_of(salt: str) -> bytes:
    """Compute the key of all hashes from `eventLogSalt`; an empty salt gets a random key."""
    if not salt:
        return os.urandom(_KEY_BYTES)
    return blake2b(salt.encode(errors="surrogatepass"), digest_size=_KEY_BYTES, person=b"events").digest()


def bounded(text: str, longest: int = LONGEST_NAMESPACE) -> str:
    """Cut a text that a client chose."""
    return text if len(text) <= longest else text[:longest]


class EventIdentities:
    """Identities of principals, clients, patterns and requests: 16 hex digits each; `plain`: the first two as is."""

    __slots__ = ("_asked", "_client", "_digest", "_pattern", "_plain", "_principal")

    def __init__(self, key: bytes, *, plain: bool = False) -> None:
        self._plain = plain
        self._principal = self._remembering(key, b"principal")
        self._client = self._remembering(key, b"client")
        self._pattern = self._remembering(key, b"pattern")
        self._digest = partial(_digest, key)
        self._asked = lru_cache(REMEMBERED)(partial(_digest, key, b"question"))

    def principal(self, principal: Hashable) -> str | None:
        """Return the identity of a principal, None without one; newer credentials of a role do not change it."""
        if principal is None:
            return None
        role = principal.role if isinstance(principal, Principal) else str(principal)
        return _as_text(bounded(role, LONGEST_IDENTITY)) if self._plain else self._principal(role)

    def client(self, name: str) -> str:
        """Return the identity of a client's address and port."""
        return bounded(name, LONGEST_IDENTITY) if self._plain else self._client(name)

    def pattern(self, pattern: str) -> str:
        """Return the identity of a topics pattern."""
        return self._pattern(pattern)

    def question(self, principal: Hashable, question: bytes) -> str:
        """Return the identity that equal requests share: a hash of principal, forwarded credentials and request."""
        parts = (*_parts_of(principal), question)
        data = b"".join([b"%d:%b" % (len(part), part) for part in parts])
        # Never cache credentials.
        forwarded = isinstance(principal, Principal) and principal.original is not None
        if forwarded or len(data) > LONGEST_REMEMBERED:
            return self._digest(b"question", data)
        return self._asked(data)

    @staticmethod
    def _remembering(key: bytes, person: bytes) -> Callable[[str], str]:
        def digest(text: str) -> str:
            return _digest(key, person, text.encode(errors="surrogatepass"))

        remembered = lru_cache(REMEMBERED)(digest)
        return lambda text: remembered(text) if len(text) <= LONGEST_REMEMBERED else digest(text)


def _as_text(role: str) -> str:
    # A token's JSON may hold half a surrogate pair, which is no UTF-8: events with such a role would be lost.
    return role.encode(errors="replace").decode()


def _digest(key: bytes, person: bytes, data: bytes) -> str:
    return blake2b(data, key=key, digest_size=DIGEST_BYTES, person=person).hexdigest()


def _parts_of(principal: Hashable) -> tuple[bytes, ...]:
    if principal is None:
        return ()
    if not isinstance(principal, Principal):
        return (str(principal).encode(errors="surrogatepass"),)
    role = principal.role.encode(errors="surrogatepass")
    given = principal.original
    return (role,) if given is None else (role, given.method.encode(errors="surrogatepass"), given.data)
