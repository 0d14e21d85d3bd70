"""The words for how requests end: each cause of a disconnect has its own, and none is another's."""

import pytest

from limiter.errors import PermitAcquireQueueFull, PermitAcquireTimeout
from proxy.core.errors import BrokerUnavailable, DisconnectCause
from proxy.telemetry.events.outcomes import close_cause_of, outcome_of
from tests.support.each import each

NAMED = {
    DisconnectCause.CLIENT_CLOSED: "client_closed",
    DisconnectCause.CONNECTION_RESET: "client_closed",
    DisconnectCause.WRITE_STALLED: "stalled",
    DisconnectCause.READS_TOO_SLOWLY: "slow",
    DisconnectCause.CONNECTION_AGE: "drained",
    DisconnectCause.SHUTDOWN: "shutdown",
    DisconnectCause.ADMIN: "admin",
}


@each("cause", DisconnectCause)
def test_each_cause_of_a_disconnect_is_told_by_its_own_word(cause: DisconnectCause) -> None:
    assert close_cause_of(cause) == NAMED.get(cause, "error")


def test_as_long_as_a_client_is_there_nothing_closed_it() -> None:
    assert close_cause_of(None) is None


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (PermitAcquireQueueFull("full", limit=1, held=1, asked=1, queued=1), "queue_full"),
        (PermitAcquireTimeout("late", limit=1, held=1, asked=1, queued=1), "timeout"),
        (TimeoutError(), "timeout"),
        (BrokerUnavailable("gone"), "upstream_error"),
        (RuntimeError("broken"), "failed"),
    ],
)
def test_each_error_has_its_outcome(error: Exception, outcome: str) -> None:
    assert outcome_of(error, under_way=True) == outcome
