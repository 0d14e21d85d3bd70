from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.addresses import host_network
from proxy.web.http.connection_places import ConnectionPlaces, kept_of


@dataclass(eq=False)
class Connection:
    """A connection by its host; `answered` as a test says."""

    host: str
    answered: bool = True

    def cut(self) -> None:
        """Nothing is open here."""


def full_of(*hosts: str) -> tuple[ConnectionPlaces[Connection], list[Connection]]:
    """Give places that are all held by requests of these hosts, which wait to be admitted."""
    places: ConnectionPlaces[Connection] = ConnectionPlaces(len(hosts) + 1)
    connections = [Connection(host) for host in hosts]
    for each in connections:
        assert not places.full
        places.take(each)
    assert places.full
    return places, connections


@pytest.mark.parametrize("host", ["a", "b"])
def test_nobody_leaves_for_a_host_that_would_then_have_most(host: str) -> None:
    places, _ = full_of("a", "a", "b")
    assert places.victim_for(host) is None


@pytest.mark.threat("many-networks-one-customer")
def test_a_customer_with_a_place_for_each_of_its_networks_gives_one_to_another() -> None:
    crowd = [host_network(f"2001:db8:1:{number:x}::1") for number in range(9)]
    places, connections = full_of(*crowd)
    assert places.victim_for(host_network("2001:db8:2::1")) is connections[0]
    assert places.victim_for(host_network("2001:db8:1:ffff::1")) is None


# --- newcomers ------------------------------------------------------------------------------------


def all_used(
    requests: Sequence[str] = "", pages: Sequence[str] = "", silent: Sequence[str] = "", idle: Sequence[str] = ""
) -> tuple[ConnectionPlaces[Connection], list[Connection]]:
    """Give as many connections as may be, by their hosts: those of a kind in the order in which they came."""
    hosts = [*requests, *pages, *silent, *idle]
    places: ConnectionPlaces[Connection] = ConnectionPlaces(len(hosts))
    connections = [Connection(host, answered=host not in silent) for host in hosts]
    for number, each in enumerate(connections):
        assert not places.all_used
        places.waits(each)
        if number < len(requests):
            places.take(each)
        elif number < len(requests) + len(pages):
            places.got_request(each)
    assert places.all_used
    return places, connections


def come_again(places: ConnectionPlaces[Connection], host: str, times: int = 40) -> Iterator[str]:
    """Have a host open connections, and yield whose connection ends for each."""
    for _ in range(times):
        victim = places.victim_for_newcomer(host)
        assert victim is not None
        places.forget(victim)
        places.waits(Connection(host, answered=False))
        yield victim.host


def test_the_longest_at_rest_of_the_host_with_most_ends_for_another_host() -> None:
    places, connections = all_used(idle="baaac")
    assert places.victim_for_newcomer("d") is connections[1]
    places.got_request(connections[1])
    assert places.victim_for_newcomer("d") is connections[2]
    for each in connections[2:4]:
        places.got_request(each)
    assert places.victim_for_newcomer("d") is connections[1]


def test_a_newcomer_goes_where_nothing_is_kept() -> None:
    places, (only,) = all_used(requests="a")
    assert places.victim_for_newcomer("b") is None
    places.asks(only)
    assert places.victim_for_newcomer("b") is only


@pytest.mark.threat("returning-web-connections")
@pytest.mark.parametrize("kind", ["requests", "silent"])
def test_a_customer_with_a_connection_for_each_of_its_networks_gives_way_as_one(kind: str) -> None:
    crowd = [host_network(f"2001:db8:1:{number:x}::1") for number in range(14)]
    places, _ = all_used(pages=["192.0.2.1", "192.0.2.2"], **{kind: crowd})
    for newcomer in ("2001:db8:2::1", "192.0.2.3", "2001:db8:1:ffff::1"):
        assert next(come_again(places, host_network(newcomer))) in crowd


@given(
    st.integers(1, 20),
    st.lists(st.tuples(st.sampled_from("aaaabbcdef"), st.sampled_from("wwgkt"), st.integers(0, 30)), max_size=200),
)
def test_however_connections_come_and_go_the_books_are_right_and_the_few_keep_what_they_ask_for(
    most: int, steps: list[tuple[str, str, int]]
) -> None:
    places: ConnectionPlaces[Connection] = ConnectionPlaces(most)
    state: dict[Connection, str] = {}
    for host, kind, number in steps:
        if kind == "w":
            if places.all_used:
                has = Counter(each.host for each in state)
                victim = places.victim_for_newcomer(host)
                if victim is None:
                    assert "w" not in state.values()
                    continue
                few = has[victim.host] < has[host] and has[host] > kept_of(most)
                assert not few or (state[victim] == "w" and victim.answered)
                places.forget(victim)
                del state[victim]
            new = Connection(host, answered=number % 2 == 0)
            places.waits(new)
            state[new] = "w"
        elif state:
            one = list(state)[number % len(state)]
            if kind == "t" and not places.full and state[one] == "g":
                places.take(one)
                state[one] = "t"
            elif kind == "g" and state[one] == "w":
                places.got_request(one)
                state[one] = "g"
            elif kind == "k":
                places.forget(one)
                del state[one]
        assert places.held == list(state.values()).count("t")
        assert len(places) == len(state) <= most
