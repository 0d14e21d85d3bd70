"""The parts of a page: sections with sentences, tables, charts and fragments of text. No pyspark here."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import pandas as pd

Row = Mapping[str, Any]
Given = ParamSpec("Given")
Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class Chart:
    """A Vega-Lite specification, what it shows for those who cannot see it, and how to read it.

    `filtered`: the script of the page draws it for one namespace or proxy, too.
    """

    name: str
    title: str
    alt: str
    caption: str
    spec: Mapping[str, Any]
    filtered: bool = False


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table: texts as they shall be read; `numeric` says which columns are numbers."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int]


class Tile(NamedTuple):
    """A key number."""

    label: str
    value: str


@dataclass(frozen=True, slots=True)
class Fragment:
    """Text to be copied as it is."""

    caption: str
    text: str


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a section has nothing to show."""

    why: str


Part = str | Tile | Chart | Fragment | Sheet | Missing


@dataclass(frozen=True, slots=True)
class Section:
    """A theme of the page; `missing` says why there is nothing."""

    name: str
    title: str
    missing: str
    tiles: tuple[Tile, ...]
    sentences: tuple[str, ...]
    charts: tuple[Chart, ...]
    fragments: tuple[Fragment, ...]
    sheets: tuple[Sheet, ...]


def section(name: str, title: str) -> Callable[[Callable[Given, Iterable[Part]]], Callable[Given, Section]]:
    """Make a function that yields parts return the section of them; parts of one kind keep their order."""

    def decorated(parts_of: Callable[Given, Iterable[Part]]) -> Callable[Given, Section]:
        @wraps(parts_of)
        def made(*args: Given.args, **named: Given.kwargs) -> Section:
            parts = list(parts_of(*args, **named))

            def of(kind: type[Kind]) -> tuple[Kind, ...]:
                return tuple(part for part in parts if isinstance(part, kind))

            why = "".join(part.why for part in of(Missing))
            return Section(name, title, why, of(Tile), of(str), of(Chart), of(Fragment), of(Sheet))

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


def pair(write: Callable[[Any], str], what: str) -> Callable[[Row], str]:
    """Return what writes one figure as it was recorded and as the replay has it."""
    return lambda row: f"{write(row[f'recorded_{what}'])} / {write(row[f'simulated_{what}'])}"
