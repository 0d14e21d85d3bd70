"""Format answers of the admin API as tables.

Rules: clients choose their names, which may not harm a terminal (`terminal_text.py`). An unknown number is `-`. Fields
of a newer proxy are ignored.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from proxy.cli.admin.terminal_text import cut, pad, plain

Row = Mapping[str, Any]

_UNITS: Final = ("B", "K", "M", "G", "T")
LONGEST_CELL: Final = 60


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, the function that formats its cell, its least width, and whether it is aligned right."""

    title: str
    cell: Callable[[Row], str]
    width: int
    number: bool = False


def table(columns: Sequence[Column], rows: Iterable[Row]) -> Iterator[str]:
    """Yield a line of titles and a line for each row; widths are fixed, so that rows are printed as they arrive."""
    yield _line(columns, [column.title for column in columns])
    for row in rows:
        yield _line(columns, [shortened(column.cell(row)) for column in columns])


def _line(columns: Sequence[Column], cells: Sequence[str]) -> str:
    padded = (pad(cell, column.width, right=column.number) for column, cell in zip(columns, cells, strict=True))
    return "  ".join(padded).rstrip()


def shortened(text: str) -> str:
    """Return a name shortened and without harmful characters, to fit into a cell."""
    return cut(plain(text[: LONGEST_CELL + 1]), LONGEST_CELL)


def size(count: float | None) -> str:
    """Format a number of bytes in the largest unit in which the number is at least 1."""
    if count is None:
        return "-"
    unit = 0
    while abs(count) >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f}{_UNITS[unit]}" if unit == 0 or count >= 100 else f"{count:.1f}{_UNITS[unit]}"


def seconds(value: float | None) -> str:
    """Format a duration with its two largest units."""
    if value is None:
        return "-"
    if value < 60:
        return f"{value:.1f}s"
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours}h"
    return f"{hours}h{minutes}m" if hours else f"{minutes}m{rest}s"


def _text(name: str) -> Callable[[Row], str]:
    return lambda row: "-" if row[name] is None else str(row[name])


def _size(name: str) -> Callable[[Row], str]:
    return lambda row: size(row[name])


def _seconds(name: str) -> Callable[[Row], str]:
    return lambda row: seconds(row[name])


def _amount(name: str) -> Callable[[Row], str]:
    """Return a formatter for a field whose unit is in the row."""
    return lambda row: size(row[name]) if row["unit"] == "bytes" else str(row[name])


def _limit(row: Row) -> str:
    return _amount("limit")(row) if row["limit"] > 0 else "none"


def _holders(row: Row) -> str:
    unit = row["unit"] == "bytes"
    return ", ".join(
        f"{holder['owner']} {size(holder['held']) if unit else holder['held']}" for holder in row["top_holders"][:2]
    )


CONNECTIONS: Final = (
    Column("ID", _text("id"), 6, number=True),
    Column("CLIENT", _text("client"), 21),
    Column("PRINCIPAL", _text("principal"), 12),
    Column("MODE", _text("mode"), 9),
    Column("BROKER", _text("broker"), 21),
    Column("AGE", _seconds("age_seconds"), 7, number=True),
    Column("IN", _size("from_client_bytes"), 6, number=True),
    Column("OUT", _size("to_client_bytes"), 6, number=True),
    Column("UNSENT", _size("unsent_bytes"), 6, number=True),
    Column("HELD", _size("held_bytes"), 6, number=True),
    Column("REQ", _text("requests"), 4, number=True),
    Column("STATE", _text("state"), 0),
)
LIMITERS: Final = (
    Column("LIMITER", _text("name"), 24),
    Column("HELD", _amount("held"), 7, number=True),
    Column("LIMIT", _limit, 7, number=True),
    Column("PEAK", _amount("peak_held"), 7, number=True),
    Column("QUEUE", _text("queue_size"), 6, number=True),
    Column("GROW", _text("growers_waiting"), 5, number=True),
    Column("GRANTED", _text("granted"), 9, number=True),
    Column("TIMEOUT", _text("timed_out"), 7, number=True),
    Column("FULL", _text("rejected"), 6, number=True),
    Column("TOP HOLDERS", _holders, 0),
)
QUEUE: Final = (
    Column("LINE", _text("line"), 24),
    Column("OWNER", _text("owner"), 24),
    Column("NAMESPACE", _text("namespace"), 24),
    Column("ASKED", _amount("asked"), 7, number=True),
    Column("WAITED", _seconds("waited_seconds"), 7, number=True),
    Column("LEFT", _seconds("seconds_left"), 7, number=True),
    Column("", lambda row: "grows" if row["grows"] else "", 0),
)
GROUPS: Final = (
    Column("NAMESPACE", _text("namespace"), 24),
    Column("PRINCIPAL", _text("principal"), 12),
    Column("BROKER", _text("broker"), 21),
    Column("STAGE", _text("stage"), 17),
    Column("MEMBERS", _text("members"), 7, number=True),
    Column("AGE", _seconds("age_seconds"), 7, number=True),
    Column("HEAP", lambda row: size(row["holds"].get("heap", 0)), 7, number=True),
    Column("DIRECT", lambda row: size(row["holds"].get("direct", 0)), 7, number=True),
    Column("CLIENTS", lambda row: ", ".join(row["clients"]), 0),
)
