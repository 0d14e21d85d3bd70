"""Map errors of the proxy to outcomes of the event schema, with pure functions.

Outcome and stage of an event determine the metrics' list outcome: `answered` is ok; `refused_heap` and `refused_direct`
are timeout or queue_full (failed: the proxy was closing) at the stages of that memory; `timed_out` is timeout at any
other stage; `failed` is oversize, upstream_error or failed; `cancelled` is cancelled. queue_full at the stage client is
a request over `maxConcurrentLookupRequests`: rejected, without a list outcome.
"""

from typing import Final

from limiter.errors import PermitAcquireError, PermitAcquireQueueFull, PermitAcquireTimeout
from proxy.core.errors import (
    BrokerUnavailable,
    ConnectionClosed,
    CredentialsUnavailable,
    DisconnectCause,
    OutOfMemory,
    OverLimit,
    RequestFailed,
    TargetRefused,
)

__all__ = ["close_cause_of", "outcome_of"]

_OF_THE_BROKER: Final = (
    BrokerUnavailable,
    ConnectionClosed,
    CredentialsUnavailable,
    TargetRefused,
)
_CLOSE_CAUSES: Final = {
    DisconnectCause.CLIENT_CLOSED: "client_closed",
    DisconnectCause.CONNECTION_RESET: "client_closed",
    DisconnectCause.WRITE_STALLED: "stalled",
    DisconnectCause.READS_TOO_SLOWLY: "slow",
    DisconnectCause.CONNECTION_AGE: "drained",
    DisconnectCause.SHUTDOWN: "shutdown",
    DisconnectCause.ADMIN: "admin",
}


def outcome_of(error: Exception, *, under_way: bool) -> str:
    """Return the outcome of a request that failed with `error`; `under_way`: the proxy had accepted the request."""
    if isinstance(error, PermitAcquireQueueFull):
        return "queue_full"
    if isinstance(error, PermitAcquireTimeout | TimeoutError):
        return "timeout"
    if isinstance(error, OverLimit):
        return "oversize"
    if isinstance(error, OutOfMemory | MemoryError):
        return "failed"
    if isinstance(error, _OF_THE_BROKER):
        return "upstream_error"
    # RequestFailed comes from the proxy before it accepts a request, and from the broker afterwards.
    if isinstance(error, RequestFailed) and not isinstance(error, PermitAcquireError):
        return "upstream_error" if under_way else "failed"
    return "failed"


def close_cause_of(cause: DisconnectCause | None) -> str | None:
    """Return why a client's connection ended before its answer; None while the connection is open."""
    return None if cause is None else _CLOSE_CAUSES.get(cause, "error")
