"""Test the messages: what was asked, what was there."""

import pickle

import pytest

from limiter import errors


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (errors.PermitAcquireTimeout, "timed out waiting for permits"),
        (errors.PermitAcquireQueueFull, "queue full"),
        (errors.PermitAcquireCancelled, "permit released during its update"),
        (errors.PermitAcquireAlreadyClosed, "already closed"),
    ],
)
def test_message_names_limiter_reason_and_numbers(kind: type[errors.PermitAcquireError], reason: str) -> None:
    error = kind("direct", 100, 90, 20, 7)
    assert str(error) == f"direct limiter: {reason}: asked 20, held 90, limit 100, queued 7"
    assert (error.limiter, error.limit, error.held, error.asked, error.queued) == ("direct", 100, 90, 20, 7)


def test_message_says_unlimited() -> None:
    assert "limit unlimited" in str(errors.PermitAcquireAlreadyClosed("heap", 0, 1, 2, 3))


def test_error_survives_being_sent_elsewhere() -> None:
    error = pickle.loads(pickle.dumps(errors.PermitAcquireTimeout("heap", 1, 2, 3, 4)))
    assert (error.limiter, error.queued) == ("heap", 4)
