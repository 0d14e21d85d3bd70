"""Whose word about a client's address counts."""

import pytest

from proxy.net.trusted_balancers import TrustedBalancers

LISTED = ("10.0.0.0/8", "2001:db8::/32", "192.0.2.1")


@pytest.mark.parametrize(
    ("address", "trusted"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("2001:db8::7", True),
        ("192.0.2.1", True),
        ("192.0.2.2", False),
        ("::1", False),
        ("no address", False),
        ("", False),
    ],
)
def test_only_listed_addresses_are_trusted(address: str, trusted: bool) -> None:
    assert (address in TrustedBalancers(LISTED)) is trusted
    assert address in TrustedBalancers(["*"])


@pytest.mark.threat("claimed-forwarded-for")
@pytest.mark.parametrize(
    ("accepted_from", "said", "client"),
    [
        ("10.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "198.51.100.66, 203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "198.51.100.66, 203.0.113.7, 10.0.0.2", "203.0.113.7"),
        ("10.0.0.1", "10.0.0.3,10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", " , ", "10.0.0.1"),
        ("203.0.113.7", "10.0.0.9", "203.0.113.7"),
    ],
)
def test_a_client_cannot_claim_an_address_that_no_balancer_has_seen(accepted_from: str, said: str, client: str) -> None:
    assert TrustedBalancers(LISTED).client_of(accepted_from, said) == client


def test_without_a_list_the_first_address_is_for_logs_and_the_last_for_turns() -> None:
    balancers = TrustedBalancers(["*"])
    assert balancers.client_of("192.0.2.9", "198.51.100.66, 203.0.113.7") == "198.51.100.66"
    assert balancers.seen_client_of("192.0.2.9", "198.51.100.66, 203.0.113.7") == "203.0.113.7"
    assert balancers.seen_client_of("192.0.2.9", " , ") == "192.0.2.9"


def test_with_a_list_turns_go_by_the_address_that_is_no_balancer_s() -> None:
    balancers = TrustedBalancers(LISTED)
    assert balancers.seen_client_of("10.0.0.1", "198.51.100.66, 203.0.113.7, 10.0.0.2") == "203.0.113.7"
    assert balancers.seen_client_of("203.0.113.7", "198.51.100.66") == "203.0.113.7"
