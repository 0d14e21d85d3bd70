"""Pages of the admin API: small steps whatever there is to show, and nobody twice or left out."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.clients.sessions import Sessions
from proxy.core.addresses import host_network
from proxy.core.registry import Entry, Registry
from proxy.web.admin import connections
from proxy.web.admin.connections import WINDOW_ROWS, ConnectionsPage
from proxy.web.admin.paging import SLICE_ROWS
from proxy.web.admin.slots import SILENT_SECONDS, AdminSlots


class Clients(Registry[Any]):
    """Many clients, which notes how many of them each step looks at."""

    def __init__(self, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.looks = 0
        for number in range(count):
            self.add(f"client {number}", since=0.0)
        monkeypatch.setattr(connections, "connection_row", self.row)

    def row(self, entry: Entry[Any], *_: object) -> dict[str, Any]:
        return {"id": entry.id, "mode": self.mode(entry.id)}

    @staticmethod
    def mode(number: int) -> str:
        return "relay" if number % 1000 == 0 else "lookup"

    def find(self, number: int) -> Any:
        self.looks += 1
        return super().find(number)


def page(clients: Clients, limit: int, **wanted: object) -> ConnectionsPage:
    sessions = cast(Sessions, SimpleNamespace(registry=clients))
    return ConnectionsPage(sessions, lambda: 0.0, str, wanted, limit)


def test_a_filter_that_few_pass_makes_no_step_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    clients, shown, before = Clients(10_000, monkeypatch), [], 0
    found = page(clients, 5, mode="relay")
    for rows in found.steps(after=0):
        assert clients.looks - before <= SLICE_ROWS
        before = clients.looks
        shown += [row["id"] for row in rows]
    assert shown == [1000, 2000, 3000, 4000, 5000]
    assert found.tail() == {"next": 5000}
    last = page(clients, 5, mode="relay")
    assert [row["id"] for rows in last.steps(after=5000) for row in rows] == [6000, 7000, 8000, 9000, 10_000]
    assert last.tail() == {"next": None}


def test_who_leaves_between_two_steps_is_passed_over_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = Clients(3 * SLICE_ROWS, monkeypatch)
    made = page(clients, 1000).steps(after=0)
    shown = [row["id"] for row in next(made)]
    clients.remove(f"client {SLICE_ROWS + 9}")
    clients.remove("client 3")
    clients.add("new", since=0.0)
    shown += [row["id"] for rows in made for row in rows]
    assert shown == [number for number in range(1, 3 * SLICE_ROWS + 1) if number != SLICE_ROWS + 10]


def test_a_walk_ends_however_many_come_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    clients, shown = Clients(WINDOW_ROWS + SLICE_ROWS, monkeypatch), 0
    for rows in page(clients, 10_000).steps(after=0):
        shown += len(rows)
        for number in range(2 * SLICE_ROWS):
            clients.add(f"new {shown} {number}", since=0.0)
    assert shown == WINDOW_ROWS + SLICE_ROWS


# --- slots ----------------------------------------------------------------------------------------


@dataclass(eq=False)
class Connection:
    """A connection of a host, read since time 0 unless a test says otherwise."""

    host: str
    silent_since: float | None = 0.0


def full_of(*hosts: str) -> tuple[AdminSlots, list[Any]]:
    """Give slots that are all held by connections of these hosts, the oldest first."""
    slots = AdminSlots(len(hosts))
    connections: list[Any] = [Connection(host) for host in hosts]
    for each in connections:
        assert not slots.full
        slots.take(each)
    assert slots.full
    return slots, connections


def test_a_complete_request_keeps_its_slot() -> None:
    slots, connections = full_of("a", "a", "a")
    slots.proven(connections[0])
    assert slots.victim_for("operator", 0.0) is connections[1]
    for each in connections:
        slots.proven(each)
    assert slots.victim_for("operator", 60.0) is None
    assert slots.full


def test_of_the_own_host_the_oldest_gives_way_when_it_has_been_silent() -> None:
    slots, (oldest, *_) = full_of("a", "a")
    assert slots.victim_for("a", SILENT_SECONDS / 2) is None
    assert slots.victim_for("a", SILENT_SECONDS) is oldest


@pytest.mark.parametrize("newcomer", ["192.0.2.1", "2001:db8:2::1"])
def test_the_networks_of_one_site_count_together(newcomer: str) -> None:
    slots, connections = full_of("192.0.2.9", *(host_network(f"2001:db8:1:{net}::1") for net in range(3)))
    assert slots.victim_for(host_network(newcomer), 0.0) is connections[1]
