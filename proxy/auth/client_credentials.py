"""What is known of one client's credentials, and what their age demands (upstream's rules of refresh, PIP-55).

Without I/O and without a clock: whoever looks says what time it is, twice: `now` is the epoch's, which credentials
expire by; `elapsed` is the loop's, by which a client has to answer.
"""

from enum import Enum

from proxy.auth.identity import AuthData, Authenticated, AuthenticationFailed, Principal


class Look(Enum):
    """What a look at a client's credentials finds."""

    VALID = "nothing to do"
    ASK = "ask the client for newer ones"
    EXPIRED = "end the connection: there will be no newer ones"
    UNANSWERED = "end the connection: the client was asked, and had time enough"


class ClientCredentials:
    """Credentials that were verified once, of a client that may be asked for newer ones."""

    __slots__ = ("_asked_at", "_forward", "_renewable", "_verifying", "expires_at", "method", "principal")

    def __init__(
        self, found: Authenticated, presented: AuthData, *, forward: bool = False, renewable: bool = False
    ) -> None:
        self.method = presented.method
        self.expires_at = found.expires_at
        self.principal = _principal(found, presented, forward=forward)
        self._forward = forward
        self._renewable = renewable
        self._asked_at: float | None = None
        self._verifying = False

    @property
    def renewable(self) -> bool:
        """Tell whether the client can be asked for newer ones: upstream asks only for what it forwards."""
        return self._forward and self._renewable

    @property
    def under_way(self) -> bool:
        """Tell whether newer ones are awaited, or are being verified."""
        return self._asked_at is not None or self._verifying

    def look(self, now: float, elapsed: float, interval_seconds: float) -> Look:
        """Decide what to do; an answer may take as long as it is from one look to the next."""
        if self._verifying:
            return Look.VALID
        if self._asked_at is not None:
            return Look.UNANSWERED if elapsed - self._asked_at >= interval_seconds else Look.VALID
        if self.valid(now):
            return Look.VALID
        return Look.ASK if self.renewable else Look.EXPIRED

    def valid(self, now: float) -> bool:
        """Tell whether they have not expired."""
        return self.expires_at is None or now < self.expires_at

    def asked(self, elapsed: float) -> None:
        """Note that the client was asked for newer ones."""
        assert not self.under_way, "a client is asked for one answer at a time"
        self._asked_at = elapsed

    def answered(self) -> bool:
        """Note an answer, which is verified now; False if nobody had asked for it."""
        if self._asked_at is None:
            return False
        self._asked_at, self._verifying = None, True
        return True

    def renewed(self, found: Authenticated, data: bytes) -> None:
        """Take newer ones in place of the old; raises AuthenticationFailed if they are somebody else's."""
        if found.role != self.principal.role:
            raise AuthenticationFailed("the role must not change while a connection lasts")
        self._verifying = False
        self.expires_at = found.expires_at
        self.principal = _principal(found, AuthData(self.method, data), forward=self._forward)


def _principal(found: Authenticated, presented: AuthData, *, forward: bool) -> Principal:
    # Who presented nothing (a certificate, or the anonymous role) has nothing that could be forwarded.
    return Principal(found.role, presented if forward and presented.data else None)
