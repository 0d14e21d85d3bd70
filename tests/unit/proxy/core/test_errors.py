"""Errors that many tasks wait for."""

import asyncio
import traceback

import pytest

from protocol.errors import ServerError
from proxy.core.errors import (
    BrokerUnavailable,
    ConnectionClosed,
    DisconnectCause,
    OverLimit,
    ProxyError,
    RequestFailed,
    own_copy,
)


@pytest.mark.parametrize(
    "error",
    [
        BrokerUnavailable("no broker"),
        ConnectionClosed(DisconnectCause.BROKER_CLOSED, "in the middle"),
        RequestFailed(ServerError.ServiceNotReady, "not ready"),
        OverLimit(ServerError.TooManyRequests, "too many", "lookups", "maxConcurrentLookupRequests", 2, 1),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_copy_says_what_the_error_says(error: ProxyError) -> None:
    copied = own_copy(error)
    assert copied is not error
    assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))


@pytest.mark.threat("questions-of-standing-broker")
async def test_tasks_that_raise_copies_add_nothing_to_the_error() -> None:
    async def fails(error: Exception) -> None:
        raise error

    error = BrokerUnavailable("no broker")
    ended = await asyncio.gather(*(fails(own_copy(error)) for _ in range(100)), return_exceptions=True)
    assert error.__traceback__ is None
    assert {len(traceback.extract_tb(copied.__traceback__)) for copied in ended if copied} == {1}
