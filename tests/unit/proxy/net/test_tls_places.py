"""Which half-done handshake leaves for others."""

import pytest

from proxy.core.addresses import host_network
from proxy.net.tls.places import LEAST_SECONDS, PLACE_SECONDS, Places


class Client:
    """A client that is known by its address only."""

    def __init__(self, client_address: str) -> None:
        self.client_address = client_address


def places(limit: int, *addresses: str) -> tuple[Places[Client], list[Client]]:
    """Give places of which each address has got one, a tenth of a second after the one before."""
    given: Places[Client] = Places(limit)
    clients = [Client(address) for address in addresses]
    for number, client in enumerate(clients):
        given.take(client, host_network(client.client_address), number / 10)
    return given, clients


def test_the_oldest_of_the_address_with_most_places_leaves_first() -> None:
    given, clients = places(4, "other", "crowd", "crowd", "crowd")
    assert given.full
    assert given.crowd(1) == ([clients[1]], 3)
    assert given.crowd(2) == (clients[1:3], 3)
    assert given.leave(clients[1])
    assert not given.leave(clients[1])
    assert given.crowd(8) == (clients[2:], 2)
    assert not given.full


def test_an_address_with_many_places_gives_one_to_others_sooner_than_to_itself() -> None:
    given, (oldest, *_) = places(100, "crowd", "crowd")
    assert given.due(oldest, 2, host_network("other"), 0) == LEAST_SECONDS
    assert given.due(oldest, 2, host_network("crowd"), 0) == PLACE_SECONDS


def test_a_place_is_kept_for_a_shorter_time_while_more_wait_but_never_less_than_the_least() -> None:
    given, (oldest,) = places(100, "a")
    waited = [given.due(oldest, 1, "a", waiting) for waiting in (0, 50, 100, 10_000)]
    assert waited == sorted(waited, reverse=True)
    assert (waited[0], waited[-1]) == (PLACE_SECONDS, LEAST_SECONDS)


@pytest.mark.threat("many-networks-one-customer")
def test_a_customer_with_a_place_in_each_of_many_networks_gives_them_to_others_soon() -> None:
    given, clients = places(100, "2001:db8:2::1", *(f"2001:db8:1:{number:x}::1" for number in range(9)))
    holders, crowd = given.crowd(3)
    assert (holders, crowd) == (clients[1:4], 9)
    assert given.due(holders[0], crowd, host_network("2001:db8:2::1"), 0) == 0.1 + LEAST_SECONDS
    assert given.due(holders[0], crowd, host_network("2001:db8:1:ffff::1"), 0) == 0.1 + PLACE_SECONDS


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("no:address", "no:address", True),
    ],
)
def test_the_owner_of_an_ipv6_network_has_one_turn(one: str, other: str, same: bool) -> None:
    assert (host_network(one) == host_network(other)) is same
