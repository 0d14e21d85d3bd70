"""Every cause of a disconnect and every way a request fails.

Owns `DisconnectCause` (the label of `pulsar_proxy_disconnects_total`), the exceptions that travel inside the proxy,
and the mapping of a failure to the `ServerError` a client understands.
"""

import errno
from enum import StrEnum
from typing import Final, TypeVar

from limiter.errors import PermitAcquireError
from protocol.errors import FrameTooLarge, ProtocolError, ServerError
from protocol.states import BEFORE_CONNECT, BEFORE_CONNECTED, SECOND_CONNECT, SECOND_CONNECTED

# No frame that may come first begins like a TLS handshake or a request of HTTP: read as the size of a frame, each of
# them is more than 350 MB.
METHOD_BYTES: Final = 4
_TLS_RECORD: Final = b"\x16\x03"
_HTTP_METHODS: Final = frozenset(b"GET |HEAD|POST|PUT |DELE|OPTI|CONN|PATC|TRAC|PRI ".split(b"|"))


class DisconnectCause(StrEnum):
    """Cause of the end of a client or broker connection."""

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
    TARGET_UNKNOWN = "target_unknown"
    BROKER_UNREACHABLE = "broker_unreachable"
    BROKER_REFUSED = "broker_refused"
    NO_BROKER_CREDENTIALS = "no_broker_credentials"
    BROKER_SILENT = "broker_silent"
    HANDSHAKE_TIMEOUT = "handshake_timeout"
    TLS_HANDSHAKE_FAILED = "tls_handshake_failed"
    TLS_ERROR = "tls_error"
    TRUNCATED = "truncated"
    NOT_TLS = "not_tls"
    TLS_ON_PLAIN_PORT = "tls_on_plain_port"
    HTTP_ON_CLIENT_PORT = "http_on_client_port"
    KEEP_ALIVE_TIMEOUT = "keep_alive_timeout"
    READ_TIMEOUT = "read_timeout"
    CONNECTION_AGE = "connection_age"
    MALFORMED_PROXY_HEADER = "malformed_proxy_header"
    CONNECTION_LIMIT = "connection_limit"
    PAUSED = "paused"
    MEMORY_LIMIT = "memory_limit"
    WRITE_FAILED = "write_failed"
    WRITE_STALLED = "write_stalled"
    READS_TOO_SLOWLY = "reads_too_slowly"
    SPILL_READ_FAILED = "spill_read_failed"
    GAVE_WAY = "gave_way"
    IDLE = "idle"
    ADMIN = "admin"
    SHUTDOWN = "shutdown"
    INTERNAL_ERROR = "internal_error"


E = TypeVar("E", bound=Exception)


class ProxyError(Exception):
    """Base class of the errors that the proxy itself raises."""


class ConnectionClosed(ProxyError):
    """The connection for a request or frame is closed; `cause` is the reason."""

    def __init__(self, cause: DisconnectCause, detail: str = "") -> None:
        super().__init__(f"{cause}: {detail}" if detail else str(cause))
        self.cause = cause
        self.detail = detail


class BrokerUnavailable(ProxyError):
    """No broker connection can be opened: refused, timed out, or too many are open."""


class CredentialsUnavailable(ProxyError):
    """The proxy has no credentials for a broker now; the text gives the reason and no part of a credential."""


class BrokerUnreachable(BrokerUnavailable):
    """The TCP connection to the broker failed."""


class BrokerNotReady(BrokerUnavailable):
    """The broker answered that it is not ready."""


class QuestionUnanswered(BrokerUnavailable):
    """The broker left one question unanswered for too long; its connection goes on."""


# Errors of this machine, for which no broker and no server is to blame.
OWN_FAULTS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


class NoSocket(BrokerUnavailable):
    """This proxy is out of sockets to connect with; the broker is not at fault."""


class TargetRefused(ProxyError):
    """The configuration does not allow connections to this address."""


class TargetUnknown(TargetRefused):
    """The target is not known to be a broker, so it does not get the proxy's own credentials."""

    def __init__(self) -> None:
        # For clients whose lookup was redirected there; a client that names the target gets a text of `public_causes`.
        super().__init__("the proxy does not know this broker: look the topic up again")


class TargetInactive(TargetRefused):
    """The target is no broker of the configuration (`checkActiveBrokers`)."""

    def __init__(self) -> None:
        super().__init__("target broker isn't available (checkActiveBrokers)")


class RequestFailed(ProxyError):
    """The error that the client of a request gets; `code` is a ServerError."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


# After these errors an unanswered request may be tried on another broker.
FAIL_OVER: tuple[type[ProxyError], ...] = (ConnectionClosed, BrokerUnavailable)


class OutOfMemory(RequestFailed):
    """The machine has no memory left for an answer, whatever the limits allow."""

    def __init__(self) -> None:
        super().__init__(ServerError.TooManyRequests, "the proxy has no memory left for the answer")


class OverLimit(RequestFailed):
    """A request is refused at once, because waiting would not help against its limit.

    `stage` is the limit's short name for operators, `key` the configuration key to change; `asked` and `limit` are in
    the unit of the key.
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
    """Translate the error that ended a request for the client (upstream's mapping: mostly ServiceNotReady)."""
    if isinstance(error, RequestFailed):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemory()
    if isinstance(error, TargetRefused):
        return RequestFailed(ServerError.ServiceNotReady, str(error))
    if isinstance(error, PermitAcquireError):
        return RequestFailed(ServerError.TooManyRequests, str(error))
    if isinstance(error, TimeoutError):
        return RequestFailed(ServerError.ServiceNotReady, "the broker did not answer in time")
    if isinstance(error, BrokerUnavailable | ConnectionClosed | CredentialsUnavailable):
        return RequestFailed(ServerError.ServiceNotReady, str(error))
    return RequestFailed(ServerError.UnknownError, "internal error of the proxy, see its log")


def own_copy(error: E) -> E:
    """Return a copy of `error`, without its traceback, for one of many that wait.

    Each task that raises an exception adds its frames to the traceback: one exception for thousands of tasks would keep
    the frames of all until the last has ended, and free them in one step of the loop.
    """
    copied: E = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = error.__cause__
    return copied


def protocol_cause(error: ProtocolError) -> DisconnectCause:
    """Return the cause of the disconnect of a peer that broke the protocol."""
    return DisconnectCause.FRAME_TOO_LARGE if isinstance(error, FrameTooLarge) else DisconnectCause.MALFORMED_FRAME


def strangers_cause(first: bytes, error: ProtocolError) -> DisconnectCause:
    """Return the cause for a peer whose first bytes are no frame: mistakes of operators have names of their own."""
    if first.startswith(_TLS_RECORD):
        return DisconnectCause.TLS_ON_PLAIN_PORT
    return DisconnectCause.HTTP_ON_CLIENT_PORT if first[:METHOD_BYTES] in _HTTP_METHODS else protocol_cause(error)
