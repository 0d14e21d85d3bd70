from dataclasses import dataclass

import pytest

from proxy.core.addresses import host_network
from proxy.web.http.connection_places import ConnectionPlaces, kept_of


@dataclass(eq=False)
class Connection:
    """A connection by its host; `idle` as a test says."""

    host: str
    idle: bool = True


def full_of(*hosts: str) -> tuple[ConnectionPlaces[Connection], list[Connection]]:
    """Give places that are all held by requests of these hosts, which wait to be admitted."""
    places: ConnectionPlaces[Connection] = ConnectionPlaces(len(hosts) + 1)
    connections = [Connection(host) for host in hosts]
    for each in connections:
        assert not places.full
        places.take(each)
    assert places.full
    return places, connections


@pytest.mark.parametrize(("connections", "kept"), [(1, 0), (2, 1), (16, 2), (256, 32), (2048, 32)])
def test_some_connections_are_kept_and_one_at_least_may_pass_on(connections: int, kept: int) -> None:
    assert kept_of(connections) == kept


def test_the_youngest_of_the_host_with_most_that_waits_leaves_for_another_host() -> None:
    places, (_, _, second, third, _) = full_of("b", "a", "a", "a", "b")
    assert places.victim_for("c") is third
    places.admitted(third)
    assert places.victim_for("c") is second


def test_the_longest_leaves_if_none_waits() -> None:
    places, connections = full_of("b", "a", "a")
    for each in connections:
        places.admitted(each)
    assert places.victim_for("c") is connections[1]


@pytest.mark.parametrize("host", ["a", "b"])
def test_nobody_leaves_for_a_host_that_would_then_have_most(host: str) -> None:
    places, _ = full_of("a", "a", "b")
    assert places.victim_for(host) is None


def test_a_customer_with_a_place_for_each_of_its_networks_gives_one_to_another() -> None:
    crowd = [host_network(f"2001:db8:1:{number:x}::1") for number in range(9)]
    places, connections = full_of(*crowd)
    assert places.victim_for(host_network("2001:db8:2::1")) is connections[0]
    assert places.victim_for(host_network("2001:db8:1:ffff::1")) is None


def test_the_network_with_most_of_a_customer_gives_places_to_its_others() -> None:
    crowd = [host_network("2001:db8:1:1::1")] * 5
    places, connections = full_of(*crowd, *["192.0.2.1"] * 5)
    assert places.victim_for(host_network("2001:db8:1:2::1")) in connections[:5]


def test_a_place_comes_back_once_however_the_request_ends() -> None:
    places, (first, second) = full_of("a", "a")
    places.admitted(first)
    for _ in range(2):
        places.rests(first)
        places.forget(second)
    assert (places.held, places.victim_for("c")) == (0, None)


def test_a_newcomer_replaces_the_longest_idle_and_then_the_longest_at_a_page() -> None:
    places: ConnectionPlaces[Connection] = ConnectionPlaces(8)
    at_page, idle, passing = Connection("a", idle=False), Connection("a"), Connection("a")
    for each in (at_page, passing, idle):
        places.rests(each)
    places.take(passing)
    assert places.longest_idle() is idle
    places.forget(idle)
    assert (places.longest_idle(), places.longest_resting()) == (None, at_page)
    places.forget(at_page)
    assert places.longest_resting() is None
