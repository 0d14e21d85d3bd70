"""The session of TLS in the native extension, as the loop uses it (`native/src/python_tls.rs`)."""

from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from proxy.core.native import native_class

# What `receive` has left behind (`TlsSession.flags`): more to receive, records of the session's own to send, the peer
# sends no more, the session has failed.
MORE: Final = 1
OWN: Final = 2
PEER_CLOSED: Final = 4
FAILED: Final = 8
Bytes = bytes | bytearray | memoryview


class TlsConfig(Protocol):
    """The settings of one side, which sessions that have begun keep."""


class TlsSession(Protocol):
    """One connection's session: ciphertext in, plaintext out, and the other way round."""

    flags: int
    # The kind and the text of a failure.
    failure: tuple[str, str] | None
    handshaking: bool
    # Bytes that came and were not handed out.
    kept: int
    # The version and the suite, empty before they are known.
    agreed: tuple[str, str]

    def receive(self, sealed: Bytes, room: memoryview) -> int:
        """Open records of `sealed`, behind what is kept, into `room`; return the plain bytes in it."""

    def keep(self, sealed: bytes) -> None:
        """Keep ciphertext for a later `receive`."""

    def take_own(self) -> bytes:
        """Return the records that the session has made by itself."""

    def seal(self, pieces: Sequence[Bytes]) -> bytes:
        """Return records of these bytes; raises ValueError(kind, text)."""

    def close_notify(self) -> bytes:
        """Return the record that says that this side sends no more; empty if it was said, or cannot be."""

    def peer_certificates(self) -> Sequence[bytes]:
        """Return the peer's certificates as DER, its own first."""


def new_config(**settings: Any) -> TlsConfig:
    """Return settings for sessions; raises ValueError(setting, text)."""
    made = native_class("TlsConfig")
    assert made is not None, "a proxy with tls has the extension"
    return cast(TlsConfig, made(**settings))


def new_session(config: TlsConfig, name: str) -> TlsSession:
    """Return a session of these settings, to a broker of that `name`; raises ValueError(kind, text)."""
    made = native_class("TlsSession")
    assert made is not None, "a proxy with tls has the extension"
    return cast(TlsSession, made(config, name))
