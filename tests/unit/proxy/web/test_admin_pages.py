"""Pages of the admin API: small steps whatever there is to show, and nobody twice or left out."""

import json
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from limiter.semaphore import AsyncSemaphore
from proxy.clients.sessions import Sessions
from proxy.core.registry import Entry, Registry
from proxy.web.admin import connections
from proxy.web.admin import server as exchange
from proxy.web.admin.connections import WINDOW_ROWS, ConnectionsPage
from proxy.web.admin.paging import SLICE_ROWS, Rows, steps
from proxy.web.admin.routes import ROUTES, check_answered
from proxy.web.admin.views import SLICE_LIMITERS, Views
from tests.support.loops.clock import ManualClock


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


def test_ten_thousand_clients_are_shown_in_steps_of_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    clients, shown, before = Clients(10_000, monkeypatch), [], 0
    for rows in page(clients, 10_000).steps(after=0):
        assert len(rows) <= SLICE_ROWS
        assert clients.looks - before <= SLICE_ROWS
        before = clients.looks
        shown += [row["id"] for row in rows]
    assert shown == list(range(1, 10_001))


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


def test_a_page_keeps_a_window_of_numbers_and_knows_whether_there_are_more(monkeypatch: pytest.MonkeyPatch) -> None:
    clients, windows = Clients(3 * WINDOW_ROWS, monkeypatch), []
    ids = clients.ids

    def noted(after: int, most: int) -> list[int]:
        windows.append(ids(after, most))
        return windows[-1]

    monkeypatch.setattr(clients, "ids", noted)
    whole, part = page(clients, 3 * WINDOW_ROWS), page(clients, 3 * WINDOW_ROWS - 1)
    for found, there in ((whole, None), (part, 3 * WINDOW_ROWS - 1)):
        assert sum(len(rows) for rows in found.steps(after=0)) == found._limit
        assert found.tail() == {"next": there}
    assert max(map(len, windows)) == WINDOW_ROWS


def test_a_walk_ends_however_many_come_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    clients, shown = Clients(WINDOW_ROWS + SLICE_ROWS, monkeypatch), 0
    for rows in page(clients, 10_000).steps(after=0):
        shown += len(rows)
        for number in range(2 * SLICE_ROWS):
            clients.add(f"new {shown} {number}", since=0.0)
    assert shown == WINDOW_ROWS + SLICE_ROWS


def test_members_that_are_gone_have_no_rows() -> None:
    registry: Registry[str] = Registry()
    registry.add("a", since=1.0)
    assert list(steps(registry, [1, 2], lambda entry: {"name": entry.member})) == [[{"name": "a"}]]


@pytest.mark.parametrize("counts", [(), (0,), (1,), (0, 2, 0, 1), (3, 3)])
@pytest.mark.parametrize("named", [False, True])
async def test_an_answer_in_steps_is_the_document_that_it_would_be_at_once(counts: list[int], named: bool) -> None:
    names = iter("abcdef")
    made = [[{next(names): {"held": count}} for _ in range(count)] for count in counts]
    rows = [row for step in made for row in step]
    expected = {name: row for each in rows for name, row in each.items()} if named else rows
    for head, tail in (({}, {}), ({"total": 7}, {"next": None})):
        answer = Rows(head, "rows", iter(made), partial(dict, tail), named=named)
        text = b"".join([piece async for piece in exchange._pieces(answer)])
        assert json.loads(text) == {**head, "rows": expected, **tail}


def test_books_of_hundreds_of_brokers_are_read_a_few_at_a_time() -> None:
    clock = ManualClock()
    lines = [
        ("bytes", AsyncSemaphore(f"line {number}", 1, max_queue=0, timeout_seconds=0, clock=clock))
        for number in range(25)
    ]
    waits = SimpleNamespace(wait_millis=None)
    sources: Any = SimpleNamespace(names=str, heap_waits=waits, direct_waits=waits)
    found = [list(step) for step in Views(sources)._limiters(lines)]
    assert [len(step) for step in found] == [SLICE_LIMITERS, SLICE_LIMITERS, 5]
    assert [name for step in found for row in step for name in row] == [semaphore.name for _, semaphore in lines]


def test_a_route_that_nothing_answers_is_refused_at_the_start() -> None:
    shown = [route.name for route in ROUTES if not route.changes]
    changed = [route.name for route in ROUTES if route.changes]
    check_answered(shown, changed)
    with pytest.raises(ValueError, match="views of the admin API differ: top"):
        check_answered([name for name in shown if name != "top"], changed)
    with pytest.raises(ValueError, match="actions of the admin API differ: greet"):
        check_answered(shown, [*changed, "greet"])
