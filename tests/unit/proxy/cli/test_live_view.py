"""The live view of `pulsar-proxy top`: pages, keys, and the terminal that it is given."""

import os
import pty
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

from proxy.cli.admin.client import AdminClient, NoAnswer
from proxy.cli.top import command
from proxy.cli.top.live_view import LiveView, show
from tests.support.patience import patient
from tests.unit.proxy.cli.test_admin_command import ROW
from tests.unit.proxy.cli.test_top import document, options

SIZE = (140, 40)
SECONDS = 20


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
        assert self.gate.wait(patient(SECONDS))
        if self.gone:
            raise NoAnswer("no proxy answers")
        if path == "/v1/top":
            return document()
        return {"connections": self.rows, "waiters": [], "groups": [], "limiters": {}}


class Shown:
    """The screens that a view has drawn, one after the other."""

    def __init__(self, view: LiveView) -> None:
        self.press = view.press
        self.size = SIZE
        self._screens: SimpleQueue[list[str]] = SimpleQueue()

    def draw(self, screen: Callable[[int, int], Sequence[str]]) -> None:
        self._screens.put(list(screen(*self.size)))

    def next(self) -> list[str]:
        return self._screens.get(timeout=patient(SECONDS))

    def until(self, text: str) -> list[str]:
        """Return the next screen with a text in it."""
        while True:
            if text in "\n".join(lines := self.next()):
                return lines


@contextmanager
def shown(proxy: Proxy) -> Iterator[Shown]:
    """Run a view that asks only when a key makes it, up to the first overview; `q` must end it."""
    view = LiveView(proxy, interval_seconds=3600)
    screens = Shown(view)
    running = threading.Thread(target=view.run, args=(screens.draw,), daemon=True)
    running.start()
    screens.until("812 in lookup mode")
    yield screens
    proxy.gate.set()
    view.press("q")
    running.join(patient(SECONDS))
    assert not running.is_alive()


def test_the_overview_is_what_top_shows_and_each_tab_asks_for_its_own() -> None:
    proxy = Proxy()
    with shown(proxy) as view:
        assert set(proxy.asked) == {"/v1/top"}
        view.press("2")
        lines = view.until("192.0.2.1:5000")
        assert "[2 connections]" in lines[0]
        assert lines[1].split()[:2] == ["ID", "CLIENT"]
        assert lines[2].split()[:2] == ["17", "192.0.2.1:5000"]
        for key, name, title in (("3", "queue", "LINE"), ("4", "groups", "NAMESPACE"), ("5", "limiters", "LIMITER")):
            view.press(key)
            view.until(f"\n{title} ")
            assert proxy.asked[-1] == f"/v1/{name}"


def test_a_proxy_that_is_gone_leaves_what_was_seen_and_is_told() -> None:
    proxy = Proxy()
    with shown(proxy) as view:
        proxy.gone = True
        view.press("1")
        assert "812 in lookup mode" in "\n".join(view.until("no proxy answers"))
        proxy.gone = False
        view.press("1")
        view.next()
        assert "no proxy answers" not in view.next()[0]


def test_one_question_at_a_time_and_none_while_it_is_paused() -> None:
    proxy = Proxy()
    with shown(proxy) as view:
        proxy.gate.clear()
        before = len(proxy.asked)
        for _ in range(5):
            view.press("1")
        for _ in range(5):
            view.next()
        proxy.gate.set()
        # The thread that asks may be slower than the screens; with the answer it has asked.
        view.next()
        assert len(proxy.asked) == before + 1
        view.press(" 1")
        view.until("paused")
        view.next()
        assert len(proxy.asked) == before + 1
        view.press(" 1")
        view.next()
        view.next()
        view.next()
        assert len(proxy.asked) == before + 2


def test_a_page_that_was_left_before_its_answer_came_is_not_shown_for_another() -> None:
    proxy = Proxy()
    with shown(proxy) as view:
        proxy.gate.clear()
        view.press("12")
        assert len(view.until("[2 connections]")) == 1
        proxy.gate.set()
        assert "192.0.2.1:5000" in view.until("CLIENT")[2]


def test_arrows_move_through_rows_and_columns_that_have_no_room() -> None:
    proxy = Proxy()
    proxy.rows = [{**ROW, "id": number} for number in range(9)]
    with shown(proxy) as view:
        view.size = (40, 5)
        view.press("2")
        assert [line.split()[0] for line in view.until("CLIENT")[1:]] == ["ID", "0", "1", "2"]
        view.press("\x1b[B")
        assert [line.split()[0] for line in view.next()[1:]] == ["ID", "1", "2", "3"]
        view.press("\x1b[6~")
        assert [line.split()[0] for line in view.next()[1:]] == ["ID", "8"]
        view.press("\x1b[5~")
        assert view.next()[2].split()[0] == "0"
        view.press("\x1b[C")
        assert view.next()[1].startswith(f"{'CLIENT':<21}  PRINCIPAL"[8:])
        # The key F5 sends a 5, and is none of the view's keys.
        view.press("\x1b[15~")
        view.press(" ")
        assert "[2 connections]" in view.until("paused")[0]


def test_keys_come_at_once_and_the_terminal_is_given_back_as_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main, terminal = pty.openpty()
    before, running = termios.tcgetattr(terminal), set(threading.enumerate())
    with os.fdopen(main, "r+b", buffering=0) as keys, os.fdopen(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        drawn: list[object] = []

        def draw(screen: Callable[[int, int], Sequence[str]]) -> None:
            if not drawn:
                assert termios.tcgetattr(terminal) != before
                keys.write(b"q")
            drawn.append(screen(*SIZE))

        show(Proxy(), 3600, draw)
        assert termios.tcgetattr(terminal) == before
        # Who reads the keys would go on with the next file that has the number of the terminal.
        keys.close()
        for thread in set(threading.enumerate()) - running:
            thread.join(patient(SECONDS))
            assert not thread.is_alive()
    printed = capsys.readouterr().out
    assert (printed.count("\x1b[?1049h"), printed.count("\x1b[?1049l")) == (1, 1)


def test_a_terminal_gets_the_live_view_and_plain_or_piped_keys_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    views: list[float] = []
    monkeypatch.setattr(AdminClient, "top", lambda client: document())
    monkeypatch.setattr("proxy.cli.top.live_view.show", lambda client, seconds, draw: views.append(seconds))
    monkeypatch.setattr(command, "watch", lambda client, show, seconds: None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for plain, keys in ((True, True), (False, False), (False, True)):
        monkeypatch.setattr(sys.stdin, "isatty", lambda keys=keys: keys)
        assert command.run_top(options(plain=plain, interval=7.0), {}) == 0
        assert views == [7.0] * (keys and not plain)
