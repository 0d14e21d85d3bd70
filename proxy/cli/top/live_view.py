"""The live view of `pulsar-proxy top`, with textual (the extra `top`): overview, connections, queue, groups, limiters.

Rule: it asks the admin API for what is on the screen and nothing else, one question at a time, off its own loop, so
that a proxy that is slow to answer never stops the keys. It changes nothing in the proxy.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, Header, Static, TabbedContent, TabPane

from proxy.cli.admin.client import AdminClient, NoAnswer, Refused
from proxy.cli.admin.tables import CONNECTIONS, GROUPS, LIMITERS, QUEUE, Column, plain
from proxy.cli.top.screen import render

# More rows than this no eye follows; `pulsar-proxy admin` shows all.
MOST_ROWS: Final = 500
_MARGIN: Final = 4

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Listing:
    """One table: its tab, its columns, and where its rows come from."""

    name: str
    title: str
    columns: tuple[Column, ...]
    path: str
    rows: Callable[[Row], Sequence[Row]]


def _books(document: Row) -> Sequence[Row]:
    return [{"name": name, **books} for name, books in document["limiters"].items()]


_CONNECTIONS: Final = f"/v1/connections?limit={MOST_ROWS}"
LISTINGS: Final = (
    Listing("connections", "Connections", CONNECTIONS, _CONNECTIONS, lambda found: found["connections"]),
    Listing("queue", "Queue", QUEUE, f"/v1/queue?limit={MOST_ROWS}", lambda found: found["waiters"]),
    Listing("groups", "Groups", GROUPS, f"/v1/groups?limit={MOST_ROWS}", lambda found: found["groups"]),
    Listing("limiters", "Limiters", LIMITERS, "/v1/limiters", _books),
)
_OVERVIEW: Final = "overview"
_PAUSED: Final = "paused"
_BY_NAME: Final = {listing.name: listing for listing in LISTINGS}


class LiveView(App[None]):
    """Show one proxy until the operator has seen enough."""

    TITLE = "pulsar-proxy top"
    ENABLE_COMMAND_PALETTE = False
    CSS = "#text { width: auto; } TabPane { padding: 0 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("space", "pause", "Pause"),
        *(Binding(str(number), f"show('{name}')", name) for number, name in enumerate((_OVERVIEW, *_BY_NAME), 1)),
    ]

    def __init__(self, client: AdminClient, interval_seconds: float) -> None:
        super().__init__()
        self._client = client
        self._interval_seconds = interval_seconds
        self._asking = False
        self.paused = False

    def compose(self) -> ComposeResult:
        """Lay the screen out."""
        yield Header()
        with TabbedContent(initial=_OVERVIEW):
            with TabPane("Overview", id=_OVERVIEW), VerticalScroll():
                yield Static(id="text", markup=False)
            for listing in LISTINGS:
                with TabPane(listing.title, id=listing.name):
                    yield DataTable(id=f"{listing.name}-table", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to ask."""
        for listing in LISTINGS:
            self._table(listing).add_columns(*(column.title or " " for column in listing.columns))
        self.set_interval(self._interval_seconds, self.look)
        self.look()

    def on_tabbed_content_tab_activated(self) -> None:
        """Ask at once for what the operator has turned to."""
        self.look()

    def action_show(self, name: str) -> None:
        """Turn to a tab."""
        self.query_one(TabbedContent).active = name

    def action_pause(self) -> None:
        """Hold still, or go on."""
        self.paused = not self.paused
        self.sub_title = _PAUSED if self.paused else ""

    def look(self) -> None:
        """Ask for what is on the screen, unless a question is under way."""
        if not self.paused and not self._asking:
            self._asking = True
            self.run_worker(self._ask(self.query_one(TabbedContent).active), exit_on_error=True)

    async def _ask(self, name: str) -> None:
        listing = _BY_NAME.get(name)
        try:
            if listing is None:
                self._show_overview(await asyncio.to_thread(self._client.top))
            else:
                self._show(listing, await asyncio.to_thread(self._client.ask, "GET", listing.path))
            self.sub_title = _PAUSED if self.paused else ""
        except (NoAnswer, Refused) as error:
            # What was seen last stays: it is what the operator needs to understand why.
            self.sub_title = plain(str(error))
        finally:
            self._asking = False

    def _show_overview(self, document: Row) -> None:
        self.query_one("#text", Static).update("\n".join(render(document, max(40, self.size.width - _MARGIN))))

    def _show(self, listing: Listing, document: Row) -> None:
        table = self._table(listing)
        row, offset = table.cursor_row, table.scroll_offset
        table.clear()
        for found in listing.rows(document):
            table.add_row(*(_cell(column, found) for column in listing.columns))
        table.move_cursor(row=row, scroll=False)
        table.scroll_to(offset.x, offset.y, animate=False)

    def _table(self, listing: Listing) -> "DataTable[Text]":
        return self.query_one(f"#{listing.name}-table", DataTable)


def _cell(column: Column, row: Row) -> Text:
    # A Text, not a text: names come from clients and are no markup.
    return Text(plain(column.cell(row)), justify="right" if column.number else "left")
