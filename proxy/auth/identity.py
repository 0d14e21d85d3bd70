"""Identities: what a peer presents, who it is found to be, and who vouches for that.

Nothing here shows credentials: neither a log line nor a traceback may carry them.
"""

from dataclasses import dataclass, field
from typing import Final, Protocol

from proxy.core.errors import ProxyError

LONGEST_ROLE: Final = 1024


def is_role(value: object) -> bool:
    """Return whether a value can be a role: printable text of 1 to 1,024 characters.

    Roles go into log lines, headers and the CONNECT of each broker connection: text that could break any of these is no
    role, whoever vouches for it.
    """
    return isinstance(value, str) and 0 < len(value) <= LONGEST_ROLE and value.isprintable()


@dataclass(frozen=True, slots=True)
class AuthData:
    """Credentials as a peer presents them: a method's name and its data."""

    method: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated client: connections to brokers, shared answers and memory shares never cross principals.

    `original` is what the client presented, kept only to be forwarded (`forwardAuthorizationCredentials`).
    """

    role: str
    original: AuthData | None = None


@dataclass(frozen=True, slots=True)
class Authenticated:
    """A role that was proven, and until when (seconds since the epoch; None: for ever)."""

    role: str
    expires_at: float | None = None


class AuthenticationFailed(ProxyError):
    """Credentials that prove nothing; the text says why and holds no part of them.

    `busy`: nobody has judged them, the same may pass at another time.
    """

    def __init__(self, message: str, *, busy: bool = False) -> None:
        super().__init__(message)
        self.busy = busy


class Provider(Protocol):
    """One way to prove a role."""

    @property
    def methods(self) -> tuple[str, ...]:
        """Name the methods of CONNECT that this provider answers for."""

    async def authenticate(self, data: bytes, certificate: bytes | None) -> Authenticated:
        """Find the role; `certificate` is the verified one of the TLS connection, DER.

        Raises AuthenticationFailed.
        """
