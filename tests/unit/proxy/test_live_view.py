"""The live view of `pulsar-proxy top`, driven by its pilot in a terminal of its own."""

import threading
from collections.abc import Mapping
from typing import Any

from tests.support.tools import library

# Without the library even the imports below would fail.
# ruff: noqa: E402
library("textual")

from textual.widgets import DataTable, Static

from proxy.cli.admin.client import AdminClient, NoAnswer
from proxy.cli.top.live_view import LiveView
from tests.support.async_client import eventually
from tests.unit.proxy.test_admin_command import ROW
from tests.unit.proxy.test_top import document


class Proxy(AdminClient):
    """A proxy that shows what a test has put there, and notes what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = [ROW]
        self.gone = False
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def ask(self, method: str, path: str, body: Any = None, seconds: float = 5.0) -> Mapping[str, Any]:
        self.asked.append(path.partition("?")[0])
        assert self.gate.wait(20)
        if self.gone:
            raise NoAnswer("no proxy answers")
        if path == "/v1/top":
            return document()
        return {"connections": self.rows, "waiters": [], "groups": [], "limiters": {}}


def text(view: LiveView) -> str:
    return str(view.query_one("#text", Static).render())


def table(view: LiveView, name: str) -> "DataTable[Any]":
    return view.query_one(f"#{name}-table", DataTable)


async def test_the_overview_is_what_top_shows_and_each_tab_asks_for_its_own() -> None:
    proxy = Proxy()
    view = LiveView(proxy, interval_seconds=3600)
    async with view.run_test(size=(140, 40)) as pilot:
        await eventually(lambda: "812 in lookup mode" in text(view), "what was waited for")
        assert set(proxy.asked) == {"/v1/top"}
        await pilot.press("2")
        await eventually(lambda: table(view, "connections").row_count == 1, "what was waited for")
        assert [str(cell) for cell in table(view, "connections").get_row_at(0)][:2] == ["17", "192.0.2.1:5000"]
        for key, name in (("3", "queue"), ("4", "groups"), ("5", "limiters")):
            await pilot.press(key)
            await eventually(lambda path=f"/v1/{name}": path in proxy.asked, "asked for")  # type: ignore[misc]
        await pilot.press("q")


async def test_a_name_of_a_client_is_no_markup() -> None:
    proxy = Proxy()
    proxy.rows = [{**ROW, "principal": "[bold]x[/bold][link"}]
    view = LiveView(proxy, interval_seconds=3600)
    async with view.run_test(size=(140, 40)) as pilot:
        await pilot.press("2")
        await eventually(lambda: table(view, "connections").row_count == 1, "what was waited for")
        assert str(table(view, "connections").get_row_at(0)[2]) == "[bold]x[/bold][link"


async def test_a_proxy_that_is_gone_leaves_what_was_seen_and_is_told() -> None:
    proxy = Proxy()
    view = LiveView(proxy, interval_seconds=3600)
    async with view.run_test(size=(140, 40)):
        await eventually(lambda: "812 in lookup mode" in text(view), "what was waited for")
        proxy.gone = True
        view.look()
        await eventually(lambda: view.sub_title == "no proxy answers", "what was waited for")
        assert "812 in lookup mode" in text(view)
        proxy.gone = False
        view.look()
        await eventually(lambda: view.sub_title == "", "what was waited for")


async def test_one_question_at_a_time_and_none_while_it_is_paused() -> None:
    proxy = Proxy()
    view = LiveView(proxy, interval_seconds=3600)
    async with view.run_test(size=(140, 40)) as pilot:
        await eventually(lambda: "812 in lookup mode" in text(view) and not view._asking, "what was waited for")
        proxy.gate.clear()
        before = len(proxy.asked)
        for _ in range(5):
            view.look()
        await eventually(lambda: len(proxy.asked) == before + 1, "what was waited for")
        await pilot.pause()
        assert len(proxy.asked) == before + 1
        proxy.gate.set()
        await eventually(lambda: not view._asking, "what was waited for")
        await pilot.press("space")
        assert view.paused
        view.look()
        assert not view._asking
        assert len(proxy.asked) == before + 1


async def test_an_answer_on_its_way_does_not_hide_that_it_is_paused() -> None:
    proxy = Proxy()
    view = LiveView(proxy, interval_seconds=3600)
    async with view.run_test(size=(140, 40)) as pilot:
        await eventually(lambda: "812 in lookup mode" in text(view) and not view._asking, "what was waited for")
        proxy.gate.clear()
        view.look()
        await pilot.press("space")
        proxy.gate.set()
        await eventually(lambda: not view._asking, "what was waited for")
        assert view.sub_title == "paused"
