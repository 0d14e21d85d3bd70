from contextlib import suppress

import pytest

from limiter.semaphore import AsyncSemaphore
from proxy.auth.identity import AuthData, AuthenticationFailed, Principal
from proxy.auth.kept_credentials import FREE_BYTES, KEPT_OF, KeptCredentials
from tests.support.loops.clock import ManualClock

LIMIT = 10_000
NETWORK, OTHER = "192.0.2.1", "192.0.2.2"


def kept_credentials() -> KeptCredentials:
    memory = AsyncSemaphore(
        "kept", LIMIT, max_queue=0, timeout_seconds=0, clock=ManualClock(), share_by_key=True, kept_of=KEPT_OF
    )
    return KeptCredentials(memory)


def principal(name: str, above: int) -> Principal:
    data = name.encode().ljust(FREE_BYTES + above, b".")
    return Principal(name, AuthData("token", data))


@pytest.mark.parametrize("given", [Principal("alice"), principal("alice", 0), Principal("a", AuthData("token", b""))])
def test_what_is_small_costs_nothing(given: Principal) -> None:
    kept = kept_credentials()
    assert kept.keep(given, NETWORK) is given
    assert kept.memory.held == 0
    kept.release(given)
    kept.release(None)


def test_equal_ones_are_one_object_and_charged_once_until_the_last_is_released() -> None:
    kept, first = kept_credentials(), principal("alice", 1000)
    assert kept.keep(first, NETWORK) is first
    assert kept.keep(principal("alice", 1000), NETWORK) is first
    assert kept.memory.held == 1000
    kept.release(principal("alice", 1000))
    assert kept.memory.held == 1000
    kept.release(first)
    assert kept.memory.held == 0
    # Whoever has none any more gives nothing back.
    kept.release(first)
    assert kept.memory.held == 0


def test_who_finds_no_memory_is_refused_for_now_and_the_operator_reads_which_key_to_change() -> None:
    kept = kept_credentials()
    kept.keep(principal("alice", 7750), NETWORK)
    with pytest.raises(AuthenticationFailed, match=r"5097 bytes.* 7750 of 10000 .*maxHandshakeInFlightMemSizeMB") as no:
        kept.keep(principal("bob", 1001), NETWORK)
    assert no.value.busy
    assert kept.keep(principal("bob", 1000), NETWORK).role == "bob"
    assert kept.memory.held == 8750


def test_one_network_leaves_memory_for_others() -> None:
    kept = kept_credentials()
    for number in range(20):
        with suppress(AuthenticationFailed):
            kept.keep(principal(f"greedy {number}", 1000), NETWORK)
    assert kept.keep(principal("bob", 1000), OTHER).role == "bob"
    assert kept.memory.held == 9000
