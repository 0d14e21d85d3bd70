"""The session of TLS in the native extension, as the loop uses it (`native/src/python_tls.rs`)."""

from typing import TYPE_CHECKING, Any, Final, cast

from proxy.core.native import native_class

if TYPE_CHECKING:
    from proxy.core.native import TlsConfig, TlsSession

# What `receive` has left behind (`TlsSession.flags`): more to receive, records of the session's own to send, the peer
# sends no more, the session has failed.
MORE: Final = 1
OWN: Final = 2
PEER_CLOSED: Final = 4
FAILED: Final = 8


def new_config(**settings: Any) -> "TlsConfig":
    """Return settings for sessions; raises ValueError(setting, text)."""
    made = native_class("TlsConfig")
    assert made is not None, "a proxy with tls has the extension"
    return cast("TlsConfig", made(**settings))


def new_session(config: "TlsConfig", name: str) -> "TlsSession":
    """Return a session of these settings, to a broker of that `name`; raises ValueError(kind, text)."""
    made = native_class("TlsSession")
    assert made is not None, "a proxy with tls has the extension"
    return cast("TlsSession", made(config, name))
