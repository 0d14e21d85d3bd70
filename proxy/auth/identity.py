"""Identities: the credentials of a peer, and the principal that they prove.

No `repr` here shows credentials: neither a log line nor a traceback may carry them.
"""

from dataclasses import dataclass, field
from typing import Final, Self

from proxy.core.errors import ProxyError
from proxy.core.public_causes import PublicCause

# The method of tokens, whatever their issuer, and that of passwords.
TOKEN: Final = "token"
PASSWORD: Final = "basic"
# The largest credentials of a client.
MAX_AUTH_DATA_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class AuthData:
    """Credentials of a peer: the name of an authentication method and its data."""

    method: str
    data: bytes = field(repr=False)

    @classmethod
    def presented(cls, method: str, data: bytes) -> Self:
        """Return what a peer presented: a token without the ASCII white space around it, any other data as it came.

        Files and shells add a line end to a token, which is no part of it. A password may begin or end with a blank.
        """
        return cls(method, data.strip() if method == TOKEN else data)


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated client. Principals never share connections to brokers, answers or memory shares.

    `original` holds the credentials of the client if they are forwarded (`forwardAuthorizationCredentials`).
    """

    role: str
    original: AuthData | None = None

    def __hash__(self) -> int:
        """Return a hash that texts and bytes keep: each request looks some twenty dictionaries up by its principal."""
        return hash(self.role if self.original is None else self.original.data)


@dataclass(frozen=True, slots=True)
class Authenticated:
    """A role that was proven, and its expiry (seconds since the epoch; None: never).

    `anonymous`: nothing was proven, and the role is the one for everybody without credentials.
    """

    role: str
    expires_at: float | None = None
    anonymous: bool = False


class AuthenticationFailed(ProxyError):
    """Credentials were refused; the text gives the reason to operators and holds no part of the credentials.

    `busy`: the credentials were not checked for lack of capacity; the same ones may pass later. `public` is all that
    the client is told.
    """

    def __init__(self, message: str, *, busy: bool = False, public: PublicCause = PublicCause.REFUSED) -> None:
        super().__init__(message)
        self.busy = busy
        self.public = PublicCause.BUSY if busy else public
