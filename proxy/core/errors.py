"""Name every way a connection ends and every way a request fails.

Owns `DisconnectCause` (the label of `pulsar_proxy_disconnects_total`), the exceptions that travel inside the proxy,
and the mapping of a failure to the `ServerError` a client understands.
"""

from enum import StrEnum

from limiter.errors import PermitAcquireError
from protocol.errors import FrameTooLarge, ProtocolError, ServerError
from protocol.states import BEFORE_CONNECT, BEFORE_CONNECTED, SECOND_CONNECT, SECOND_CONNECTED


class DisconnectCause(StrEnum):
    """Why a client or broker connection ended."""

    CLIENT_CLOSED = "client_closed"
    BROKER_CLOSED = "broker_closed"
    CONNECTION_RESET = "connection_reset"
    MALFORMED_FRAME = "malformed_frame"
    FRAME_TOO_LARGE = "frame_too_large"
    COMMAND_BEFORE_CONNECT = BEFORE_CONNECT
    COMMAND_BEFORE_CONNECTED = BEFORE_CONNECTED
    SECOND_CONNECT = SECOND_CONNECT
    SECOND_CONNECTED = SECOND_CONNECTED
    UNSUPPORTED_VERSION = "unsupported_version"
    PROXY_VERSION_REFUSED = "proxy_version_refused"
    AUTHENTICATION_FAILED = "authentication_failed"
    CREDENTIALS_EXPIRED = "credentials_expired"
    CREDENTIALS_NOT_RENEWED = "credentials_not_renewed"
    TARGET_REFUSED = "target_refused"
    BROKER_UNREACHABLE = "broker_unreachable"
    BROKER_REFUSED = "broker_refused"
    NO_BROKER_CREDENTIALS = "no_broker_credentials"
    BROKER_SILENT = "broker_silent"
    HANDSHAKE_TIMEOUT = "handshake_timeout"
    TLS_HANDSHAKE_FAILED = "tls_handshake_failed"
    TLS_ERROR = "tls_error"
    NOT_TLS = "not_tls"
    TLS_ON_PLAIN_PORT = "tls_on_plain_port"
    KEEP_ALIVE_TIMEOUT = "keep_alive_timeout"
    READ_TIMEOUT = "read_timeout"
    CONNECTION_AGE = "connection_age"
    MALFORMED_PROXY_HEADER = "malformed_proxy_header"
    CONNECTION_LIMIT = "connection_limit"
    MEMORY_LIMIT = "memory_limit"
    WRITE_FAILED = "write_failed"
    WRITE_STALLED = "write_stalled"
    READS_TOO_SLOWLY = "reads_too_slowly"
    IDLE = "idle"
    ADMIN = "admin"
    SHUTDOWN = "shutdown"
    INTERNAL_ERROR = "internal_error"


class ProxyError(Exception):
    """Parent of everything the proxy raises itself."""


class ConnectionClosed(ProxyError):
    """The connection that should carry something is gone; `cause` says why."""

    def __init__(self, cause: DisconnectCause, detail: str = "") -> None:
        super().__init__(f"{cause}: {detail}" if detail else str(cause))
        self.cause = cause


class BrokerUnavailable(ProxyError):
    """No broker connection could be had: refused, timed out, or too many are open."""


class CredentialsUnavailable(ProxyError):
    """The proxy has no credentials for a broker now; the text says why and holds no part of them."""


class BrokerUnreachable(BrokerUnavailable):
    """The broker did not even answer TCP."""


class BrokerNotReady(BrokerUnavailable):
    """The broker says that it does not serve now."""


class NoSocket(BrokerUnavailable):
    """This proxy has no socket left to connect with; no broker is to blame."""


class TargetRefused(ProxyError):
    """The address is not one this proxy may connect to."""


class RequestFailed(ProxyError):
    """A request ends with this error for the client; `code` is a ServerError."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


# What a request that was not answered may be tried on another broker after.
FAIL_OVER: tuple[type[ProxyError], ...] = (ConnectionClosed, BrokerUnavailable)


class OverLimit(RequestFailed):
    """A request is refused at once by a limit that waiting does not help against.

    `stage` is its short name for operators, `key` the configuration key to change; `asked` and `limit` are numbers of
    what the key counts.
    """

    def __init__(self, code: int, message: str, stage: str, key: str, asked: int, limit: int) -> None:
        super().__init__(code, message)
        self.stage = stage
        self.key = key
        self.asked = asked
        self.limit = limit


HEAP_REFUSAL = "Failed due to heap memory limit exceeded"
DIRECT_REFUSAL = "Failed due to direct memory limit exceeded"


def request_failure(error: BaseException) -> RequestFailed:
    """Translate whatever ended a request into what its client is told (upstream's mapping: mostly ServiceNotReady)."""
    if isinstance(error, RequestFailed):
        return error
    if isinstance(error, TargetRefused):
        return RequestFailed(ServerError.ServiceNotReady, str(error))
    if isinstance(error, PermitAcquireError):
        return RequestFailed(ServerError.TooManyRequests, str(error))
    if isinstance(error, TimeoutError):
        return RequestFailed(ServerError.ServiceNotReady, "the broker did not answer in time")
    if isinstance(error, BrokerUnavailable | ConnectionClosed | CredentialsUnavailable):
        return RequestFailed(ServerError.ServiceNotReady, str(error))
    return RequestFailed(ServerError.UnknownError, "internal error of the proxy, see its log")


def protocol_cause(error: ProtocolError) -> DisconnectCause:
    """Name the disconnect that a peer's broken bytes lead to."""
    return DisconnectCause.FRAME_TOO_LARGE if isinstance(error, FrameTooLarge) else DisconnectCause.MALFORMED_FRAME
