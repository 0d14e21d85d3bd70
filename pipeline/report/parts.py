"""What a page is made of: sections with sentences, tables, charts and fragments of text. No pyspark here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["MOST_POINTS", "Cell", "Chart", "Filters", "Fragment", "Section", "Sheet"]

# More is no better to look at, and the page must stay small.
MOST_POINTS: Final = 5000
Cell = str | int | float | bool | None


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
class Filters:
    """What can be chosen, as numbers with labels, and for each choice what the script of the page draws."""

    namespaces: tuple[tuple[int, str], ...]
    proxies: tuple[tuple[int, str], ...]
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table: texts as they shall be read; `numeric` says which columns are numbers."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Fragment:
    """Text to be copied as it is."""

    caption: str
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """One theme of the page: tiles, sentences, charts, fragments, tables; `missing` says why there is nothing.

    A tile is a key number: what it is, and the number.
    """

    name: str
    title: str
    sentences: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    fragments: tuple[Fragment, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    missing: str = ""
    tiles: tuple[tuple[str, str], ...] = ()
