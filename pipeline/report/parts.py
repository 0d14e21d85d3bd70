"""The parts of a page: sections with sentences, key numbers, charts, tables, lines to copy. No pyspark here."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, ParamSpec, TypeVar

import pandas as pd
from markupsafe import Markup

Row = Mapping[str, Any]
Given = ParamSpec("Given")
Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture, what it shows for those who cannot see it, and how to read it."""

    kind: ClassVar[str] = "chart"
    name: str
    title: str
    alt: str
    caption: str
    svg: Markup


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table: texts as they shall be read; `numeric` says which columns are numbers."""

    kind: ClassVar[str] = "sheet"
    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int]


@dataclass(frozen=True, slots=True)
class Tiles:
    """Key numbers by what they are."""

    kind: ClassVar[str] = "tiles"
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Fragment:
    """Text to be copied as it is."""

    kind: ClassVar[str] = "fragment"
    caption: str
    text: str


@dataclass(frozen=True, slots=True)
class Missing:
    """Why there is nothing to show."""

    kind: ClassVar[str] = "missing"
    why: str


Part = str | Tiles | Chart | Fragment | Sheet | Missing


@dataclass(frozen=True, slots=True)
class Section:
    """A theme of the page."""

    name: str
    title: str
    parts: tuple[Part, ...]


def section(name: str, title: str) -> Callable[[Callable[Given, Iterable[Part]]], Callable[Given, Section]]:
    """Make a function that yields parts return the section of them."""

    def decorated(parts_of: Callable[Given, Iterable[Part]]) -> Callable[Given, Section]:
        @wraps(parts_of)
        def made(*args: Given.args, **named: Given.kwargs) -> Section:
            return Section(name, title, tuple(parts_of(*args, **named)))

        return made

    return decorated


def sheet(
    caption: str, rows: Iterable[Kind], columns: Mapping[str, Callable[[Kind], str]], words: Collection[str] = ()
) -> Sheet:
    """Write rows as a table: `columns` have what a cell says by its header; those in `words` are no numbers."""
    cells = tuple(tuple(write(row) for write in columns.values()) for row in rows)
    numeric = frozenset(place for place, header in enumerate(columns) if header not in words)
    return Sheet(caption, tuple(columns), cells, numeric)


def cell(write: Callable[[Any], str], column: str) -> Callable[[Row], str]:
    """Return what writes one column of a row."""
    return lambda row: write(row[column])


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame by the names of their columns."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
