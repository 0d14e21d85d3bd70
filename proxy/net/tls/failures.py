"""Why TLS fails: the disconnect cause, a short reason for the metric, and a text for the operator."""

import ssl
from typing import Final, Self

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
_VERSION_OR_CIPHER: Final = ("VERSION", "PROTOCOL", "CIPHER", "SIGALG", "SIGNATURE_ALGORITHMS", "GROUP", "CURVE")
_LONGEST_TEXT: Final = 200


class TlsFailed(ConnectionClosed):
    """A connection ended because of TLS; `reason` is one of `REASONS`, or `broken` after the handshake."""

    def __init__(self, cause: DisconnectCause, reason: str, detail: str) -> None:
        super().__init__(cause, detail)
        self.reason = reason
        self.detail = detail

    @classmethod
    def of(cls, error: Exception) -> Self:
        """Translate an exception of a handshake; an unexpected one becomes `__cause__`, so that it is reported."""
        if isinstance(error, ssl.SSLError | ssl.CertificateError | OSError):
            return cls(DisconnectCause.TLS_HANDSHAKE_FAILED, _reason(error), describe(error))
        failed = cls(DisconnectCause.INTERNAL_ERROR, "other", f"{type(error).__name__}: {error}")
        failed.__cause__ = error
        return failed


def _reason(error: Exception) -> str:
    name = getattr(error, "reason", None) or ""
    if isinstance(error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY" in name or "DID_NOT_RETURN" in name:
        return "certificate"
    if "ALERT" in name:
        return "peer_refused"
    return "version_or_cipher" if any(part in name for part in _VERSION_OR_CIPHER) else "other"


def idle_talk(detail: str) -> TlsFailed:
    """Return the failure of a peer that sends too much TLS traffic without data."""
    return TlsFailed(DisconnectCause.TLS_ERROR, "broken", f"the peer keeps tls busy with itself: got {detail}")


def describe(error: Exception) -> str:
    """Return the text of an OpenSSL error, without the names of OpenSSL's source files."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"the certificate is refused: {error.verify_message}"
    else:
        text = str(getattr(error, "reason", None) or error).replace("_", " ")
    return text[:_LONGEST_TEXT].lower() if text.isupper() else text[:_LONGEST_TEXT]
