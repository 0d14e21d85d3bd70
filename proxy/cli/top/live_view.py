"""The live view of `pulsar-proxy top`: overview, connections, queue, groups and limiters, selected by keys.

Rule: the view requests only the page on the screen, one request at a time and in a thread, so that a slow proxy never
blocks the keys. The view changes nothing in the proxy.
"""

import os
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final

from proxy.cli.admin.client import AdminClient, NoAnswer, Refused
from proxy.cli.admin.tables import CONNECTIONS, GROUPS, LIMITERS, QUEUE, Column, table
from proxy.cli.admin.terminal_text import cut, plain
from proxy.cli.top.screen import render

# Most rows on a page; `pulsar-proxy admin` shows all.
MOST_ROWS: Final = 500
QUIT: Final = "q"
PAUSE: Final = " "
ESCAPE: Final = "\x1b"
# Rows and columns by which a key scrolls: arrows, page up and page down.
MOVES: Final = {
    "\x1b[A": (-1, 0), "\x1b[B": (1, 0), "\x1b[D": (0, -16), "\x1b[C": (0, 16), "\x1b[5~": (-20, 0), "\x1b[6~": (20, 0),
}  # fmt: skip
_KEY_BYTES: Final = 32
# The alternate screen, so that the shell's lines come back at the end, without a cursor.
_TAKE_SCREEN: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE_SCREEN: Final = "\x1b[?25h\x1b[?1049l"

Row = Mapping[str, Any]
Draw = Callable[[Callable[[int, int], Sequence[str]]], None]


@dataclass(frozen=True, slots=True)
class View:
    """A page: the path of its document, and the columns and rows of its table; the overview has no table."""

    name: str
    path: str
    columns: tuple[Column, ...] = ()
    rows: Callable[[Row], Sequence[Row]] = lambda document: ()


@dataclass(frozen=True, slots=True)
class _ViewAnswer:
    """The document of a page, or the reason why there is none."""

    page: View
    document: Row | None
    problem: str = ""


def _limiters(document: Row) -> Sequence[Row]:
    return [{"name": name, **state} for name, state in document["limiters"].items()]


PAGES: Final = (
    View("overview", "/v1/top"),
    View("connections", f"/v1/connections?limit={MOST_ROWS}", CONNECTIONS, lambda found: found["connections"]),
    View("queue", f"/v1/queue?limit={MOST_ROWS}", QUEUE, lambda found: found["waiters"]),
    View("groups", f"/v1/groups?limit={MOST_ROWS}", GROUPS, lambda found: found["groups"]),
    View("limiters", "/v1/limiters", LIMITERS, _limiters),
)


class LiveView:
    """Shows one proxy until the operator leaves."""

    def __init__(self, client: AdminClient, interval_seconds: float) -> None:
        self._client = client
        self._interval_seconds = interval_seconds
        self._events: SimpleQueue[str | _ViewAnswer] = SimpleQueue()
        self._documents: dict[View, Row] = {}
        self._page = PAGES[0]
        self._row = self._column = 0
        self._asking = self._paused = False
        self._problem = ""

    def run(self, draw: Draw) -> None:
        """Fetch and draw pages until the key `q` is pressed."""
        self._look()
        due = time.monotonic() + self._interval_seconds
        while True:
            draw(self.screen)
            try:
                event = self._events.get(timeout=max(0.0, due - time.monotonic()))
            except Empty:
                due = time.monotonic() + self._interval_seconds
                self._look()
                continue
            if event == QUIT:
                return
            if isinstance(event, _ViewAnswer):
                self._take(event)
            else:
                self._pressed(event)

    def press(self, keys: str) -> None:
        """Enqueue the keys that a terminal sent; may be called from any thread."""
        # Arrows and page keys arrive as an escape sequence, whose characters must not be read as other keys.
        for key in [keys] if keys.startswith(ESCAPE) else keys:
            self._events.put(key)

    def screen(self, columns: int, lines: int) -> list[str]:
        """Return the lines of the page, at most `lines` of at most `columns`, below a line with the keys."""
        shown = self._documents.get(self._page)
        body = [] if shown is None else self._body(shown, columns, max(1, lines - 1))
        return [self._head()[:columns], *body][:lines]

    def _head(self) -> str:
        tabs = (f"[{number} {page.name}]" if page is self._page else f" {number} {page.name} "
                for number, page in enumerate(PAGES, 1))  # fmt: skip
        state = self._problem or ("paused" if self._paused else "")
        return f"{state}{'  ' * bool(state)}{''.join(tabs)}  space pause  q quit"

    def _body(self, document: Row, columns: int, room: int) -> list[str]:
        if self._page.columns:
            titles, *rows = table(self._page.columns, self._page.rows(document))
        else:
            # The overview shows a selection that fits the screen, and all lines once the operator scrolls down.
            titles, *rows = render(document, columns, None if self._row else room)
        self._row = min(self._row, max(0, len(rows) - 1))
        seen = [titles, *rows[self._row :]][:room]
        return [cut(line[self._column :], columns, end="") for line in seen]

    def _pressed(self, key: str) -> None:
        if key == PAUSE:
            self._paused = not self._paused
        elif key in MOVES:
            rows, columns = MOVES[key]
            self._row, self._column = max(0, self._row + rows), max(0, self._column + columns)
        elif key.isdecimal() and 1 <= int(key) <= len(PAGES):
            self._page, self._row, self._column = PAGES[int(key) - 1], 0, 0
            self._look()

    def _look(self) -> None:
        """Fetch the page on the screen, unless a request is in progress."""
        if not self._paused and not self._asking:
            self._asking = True
            threading.Thread(target=self._ask, args=(self._page,), daemon=True).start()

    def _ask(self, page: View) -> None:
        try:
            self._events.put(_ViewAnswer(page, self._client.ask("GET", page.path)))
        except (NoAnswer, Refused) as error:
            self._events.put(_ViewAnswer(page, None, plain(str(error))))

    def _take(self, answer: _ViewAnswer) -> None:
        self._asking = False
        self._problem = answer.problem
        # Without an answer the last document stays on the screen: it may show the operator the cause.
        if answer.document is not None:
            self._documents[answer.page] = answer.document
        if answer.page is not self._page:
            self._look()


def show(client: AdminClient, interval_seconds: float, draw: Draw) -> None:
    """Show the proxy on the terminal of this process until the operator leaves."""
    view = LiveView(client, interval_seconds)
    with _terminal() as descriptor:
        threading.Thread(target=_read_keys, args=(descriptor, view), daemon=True).start()
        view.run(draw)


def _read_keys(descriptor: int, view: LiveView) -> None:
    # Reading from a closed terminal is an error.
    with suppress(OSError):
        while keys := os.read(descriptor, _KEY_BYTES):
            view.press(keys.decode(errors="replace"))
    view.press(QUIT)


@contextmanager
def _terminal() -> Iterator[int]:
    """Switch to the alternate screen, and read keys at once and without echo, until the block ends."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        print(_TAKE_SCREEN, end="", flush=True)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        print(_LEAVE_SCREEN, end="", flush=True)
