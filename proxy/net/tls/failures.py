"""Why TLS fails: the disconnect cause, a short reason for the metric, and a text for the operator."""

from typing import Final, Self

from proxy.core.counters import counter_by
from proxy.core.errors import ConnectionClosed, DisconnectCause

# Values of the metric's label `result` for handshakes that fail.
REASONS: Final = (
    "not_tls",
    "certificate",
    "version_or_cipher",
    "peer_refused",
    "gone",
    "timeout",
    "displaced",
    "other",
)


HANDSHAKES: Final = counter_by(
    ("peer", "result"),
    "tls_handshakes",
    "TLS handshakes with clients and brokers by result.",
    (("client", "done"), ("broker", "done")),
)


class TlsFailed(ConnectionClosed):
    """A connection ended because of TLS; `reason` is one of `REASONS`, or `broken` after the handshake."""

    def __init__(self, cause: DisconnectCause, reason: str, detail: str) -> None:
        super().__init__(cause, detail)
        self.reason = reason

    @classmethod
    def of(cls, error: Exception) -> Self:
        """Translate an exception of a handshake that nobody expects; it becomes `__cause__`, so that it is reported."""
        failed = cls(DisconnectCause.INTERNAL_ERROR, "other", f"{type(error).__name__}: {error}")
        failed.__cause__ = error
        return failed


def failed(cause: DisconnectCause, told: tuple[str, str] | None, reason: str | None = None) -> TlsFailed:
    """Return the failure that a session tells: its kind, or `reason`, and its text."""
    kind, text = told or ("other", "the session ended")
    return TlsFailed(cause, reason or kind, text)
