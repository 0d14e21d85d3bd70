"""The exceptions of the protocol core, and the error numbers of the wire.

    ProtocolError (abstract)
    ├── LocalProtocolError       we misused the protocol: a bug on our side
    └── RemoteProtocolError      the peer's bytes are wrong: its connection ends
        ├── FrameTooLarge        a frame above the size cap of its role
        ├── MalformedFrame       sizes that contradict each other, or bytes that are no command
        └── UnexpectedCommand    a legal command where the state does not allow it, or an unknown one

Rule: nothing else leaves the core for bytes from a peer; any other exception is a bug. It imports nothing of
ours, so every module of the core may import it.
"""

from enum import IntEnum


class ServerError(IntEnum):
    """Name the error numbers of ERROR and the responses: those of PulsarApi.proto, without loading it."""

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
    """Be the parent of every exception of the core; never raised itself.

    `server_error_hint` is the number to put into an ERROR, should the peer get one.
    """

    server_error_hint: int = ServerError.UnknownError

    def __init__(self, message: str, *, server_error_hint: int | None = None) -> None:
        if type(self) in (ProtocolError, RemoteProtocolError):
            raise TypeError(f"{type(self).__name__} is abstract: raise one of its children")
        super().__init__(message)
        if server_error_hint is not None:
            self.server_error_hint = server_error_hint


class LocalProtocolError(ProtocolError):
    """Report that this side asked for something the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """Be the parent of what a peer can do wrong; never raised itself."""


class FrameTooLarge(RemoteProtocolError):
    """Report a frame above the cap of its role."""

    server_error_hint = ServerError.NotAllowedError


class MalformedFrame(RemoteProtocolError):
    """Report bytes that are no frame, or a frame that holds no valid command."""


class UnexpectedCommand(RemoteProtocolError):
    """Report a command that this state does not accept, or whose number nobody knows."""

    server_error_hint = ServerError.NotAllowedError
