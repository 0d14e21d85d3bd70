"""State of the credentials of a client, and when they must be refreshed (PIP-55), whether brokers get them or not.

No I/O and no clock: the caller passes two times. `now` is seconds since the epoch, by which credentials expire;
`elapsed` is the loop's time, by which a client has to answer.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final

from proxy.auth.identity import AuthData, Authenticated, AuthenticationFailed, Principal
from proxy.core.public_causes import PublicCause

# A look comes once in an interval: one that is a little early must not give a client another interval.
EARLY_SECONDS: Final = 0.5


class Look(Enum):
    """Result of a look at the credentials of a client."""

    VALID = "nothing to do"
    ASK = "ask the client for newer ones"
    EXPIRED = "end the connection: there will be no newer ones"
    UNANSWERED = "end the connection: the client was asked, and had time enough"


class ClientCredentials:
    """Verified credentials of a client, which may be asked to renew them."""

    __slots__ = ("_asked_at", "_forward", "_verifying", "expires_at", "method", "principal", "renewable")

    def __init__(
        self, found: Authenticated, presented: AuthData, *, forward: bool = False, renewable: bool = False
    ) -> None:
        self.method = presented.method
        self.expires_at = found.expires_at
        self.principal = _principal(found, presented, forward=forward)
        # Whether the client says that it can be asked for newer ones.
        self.renewable = renewable
        self._forward = forward
        self._asked_at: float | None = None
        self._verifying = False

    @property
    def forwarded(self) -> bool:
        """Whether brokers get the credentials, and may ask for newer ones."""
        return self.principal.original is not None

    @property
    def under_way(self) -> bool:
        """Whether new credentials are awaited or are being verified."""
        return self._asked_at is not None or self._verifying

    def look(self, now: float, elapsed: float, interval_seconds: float) -> Look:
        """Return what has to be done; a client has `interval_seconds` to answer."""
        if self._verifying:
            return Look.VALID
        if self._asked_at is not None:
            late = elapsed - self._asked_at >= interval_seconds - EARLY_SECONDS
            return Look.UNANSWERED if late else Look.VALID
        if self.valid(now):
            return Look.VALID
        return Look.ASK if self.renewable else Look.EXPIRED

    def valid(self, now: float) -> bool:
        """Return whether the credentials have not expired."""
        return self.expires_at is None or now < self.expires_at

    def asked(self, elapsed: float) -> None:
        """Record that the client was asked for new credentials."""
        assert not self.under_way, "a client is asked for one answer at a time"
        self._asked_at = elapsed

    def answered(self) -> bool:
        """Record an answer, which is now being verified; return False for an answer that was not asked for."""
        if self._asked_at is None:
            return False
        self._asked_at, self._verifying = None, True
        return True

    def renewed(
        self, found: Authenticated, presented: AuthData, keep: Callable[[Principal], Principal] = lambda new: new
    ) -> None:
        """Replace the old credentials; raise AuthenticationFailed if the new ones prove another role.

        `keep` returns the principal to keep, or raises.
        """
        if found.role != self.principal.role:
            detail = "the new credentials prove another role"
            raise AuthenticationFailed(detail, public=PublicCause.ROLE_CHANGED)
        self.principal = keep(_principal(found, presented, forward=self._forward))
        self._verifying = False
        self.expires_at = found.expires_at


def _principal(found: Authenticated, presented: AuthData, *, forward: bool) -> Principal:
    # Data that proves nothing is not kept: a client of the anonymous role may send any.
    return Principal(found.role, presented if forward and presented.data and not found.anonymous else None)
