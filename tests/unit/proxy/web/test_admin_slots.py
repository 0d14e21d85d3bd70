"""Who gives up a slot of the admin API to whom."""

from dataclasses import dataclass

import pytest

from proxy.core.addresses import host_network
from proxy.web.admin.slots import SILENT_SECONDS, AdminSlots


@dataclass(eq=False)
class Connection:
    """A connection of a host, read since time 0 unless a test says otherwise."""

    host: str
    silent_since: float | None = 0.0


def full_of(*hosts: str) -> tuple[AdminSlots[Connection], list[Connection]]:
    """Give slots that are all held by connections of these hosts, the oldest first."""
    slots: AdminSlots[Connection] = AdminSlots(len(hosts))
    connections = [Connection(host) for host in hosts]
    for each in connections:
        assert not slots.full
        slots.take(each)
    assert slots.full
    return slots, connections


def test_the_oldest_of_the_host_with_most_gives_way_at_once() -> None:
    slots, (_, first, *_) = full_of("b", "a", "a", "b", "a")
    assert slots.victim_for("operator", 0.0) is first
    slots.free(first)
    assert not slots.full


def test_a_complete_request_keeps_its_slot() -> None:
    slots, connections = full_of("a", "a", "a")
    slots.proven(connections[0])
    assert slots.victim_for("operator", 0.0) is connections[1]
    for each in connections:
        slots.proven(each)
    assert slots.victim_for("operator", 60.0) is None
    assert slots.full


@pytest.mark.threat("silent-admin-connections")
def test_a_crowd_that_comes_again_ends_nobody_of_another_host() -> None:
    slots, connections = full_of("operator", "a", "a", "a")
    assert slots.victim_for("a", 60.0) is connections[1]


def test_of_the_own_host_the_oldest_gives_way_when_it_has_been_silent() -> None:
    slots, (oldest, *_) = full_of("a", "a")
    assert slots.victim_for("a", SILENT_SECONDS / 2) is None
    assert slots.victim_for("a", SILENT_SECONDS) is oldest


@pytest.mark.parametrize("newcomer", ["192.0.2.1", "2001:db8:2::1"])
def test_the_networks_of_one_site_count_together(newcomer: str) -> None:
    slots, connections = full_of("192.0.2.9", *(host_network(f"2001:db8:1:{net}::1") for net in range(3)))
    assert slots.victim_for(host_network(newcomer), 0.0) is connections[1]
