"""The exceptions of the protocol core, and the error numbers of the wire.

    ProtocolError (abstract)
    ├── LocalProtocolError       this side misused the protocol: a bug of the proxy
    └── RemoteProtocolError      the peer's bytes are wrong: its connection ends
        ├── FrameTooLarge        a frame above the size cap of its role
        ├── MalformedFrame       sizes that contradict each other, or bytes that are no command
        ├── TooManyFields        a command that would take many times its bytes when it is decoded
        └── UnexpectedCommand    a command that the state does not allow, or an unknown command

Rule: bytes from a peer raise no other exception; any other exception is a bug. This module imports no other module of
the project, so every module of `protocol` may import it.
"""

from enum import IntEnum


class ServerError(IntEnum):
    """The error numbers of ERROR and the responses, as in PulsarApi.proto, without loading the generated module."""

    UnknownError = 0
    MetadataError = 1
    PersistenceError = 2
    AuthenticationError = 3
    AuthorizationError = 4
    ConsumerBusy = 5
    ServiceNotReady = 6
    ProducerBlockedQuotaExceededError = 7
    ProducerBlockedQuotaExceededException = 8
    ChecksumError = 9
    UnsupportedVersionError = 10
    TopicNotFound = 11
    SubscriptionNotFound = 12
    ConsumerNotFound = 13
    TooManyRequests = 14
    TopicTerminatedError = 15
    ProducerBusy = 16
    InvalidTopicName = 17
    IncompatibleSchema = 18
    ConsumerAssignError = 19
    TransactionCoordinatorNotFound = 20
    InvalidTxnStatus = 21
    NotAllowedError = 22
    TransactionConflict = 23
    TransactionNotFound = 24
    ProducerFenced = 25


class ProtocolError(Exception):
    """Parent of every exception of `protocol`; never raised itself.

    `server_error_hint` is the number for an ERROR to the peer, if one is sent.
    """

    server_error_hint: int = ServerError.UnknownError

    def __init__(self, message: str, *, server_error_hint: int | None = None) -> None:
        if type(self) in (ProtocolError, RemoteProtocolError):
            raise TypeError(f"{type(self).__name__} is abstract: raise one of its children")
        super().__init__(message)
        if server_error_hint is not None:
            self.server_error_hint = server_error_hint


class LocalProtocolError(ProtocolError):
    """This side asked for something that the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """Parent of the errors of a peer; never raised itself."""


class FrameTooLarge(RemoteProtocolError):
    """A frame exceeds the cap of its role."""

    server_error_hint = ServerError.NotAllowedError


class MalformedFrame(RemoteProtocolError):
    """Bytes are no frame, or a frame holds no valid command."""


class TooManyFields(RemoteProtocolError):
    """A command has more entries in a repeated field, more fields or deeper messages than are decoded.

    `what` names these in the plural, and `most` is how many are served.
    """

    server_error_hint = ServerError.NotAllowedError

    def __init__(self, message: str, what: str, most: int) -> None:
        super().__init__(message)
        self.what = what
        self.most = most


class UnexpectedCommand(RemoteProtocolError):
    """The state does not accept a command, or its number is unknown."""

    server_error_hint = ServerError.NotAllowedError
