"""Who comes first: the rankings of a page in words and as JSON, and whether the first stands out at all. Pure."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pipeline.report.facts import EVERYBODY, MEASURES, Facts
from pipeline.report.parts import Row, Sheet, sheet
from pipeline.report.units import count, duration, share, shown, spread_of, words_of

WHO: Final = ("tenant", "namespace", "principal", "client_version")
# Places are no culprits, and say where to look.
WHERE: Final = ("proxy_id", "broker")
DIMENSIONS: Final = (*WHO, *WHERE)
# Without whoever has less than a fifth, four fifths of all would still be there: there is nobody to talk to first.
LEAST_SHARE: Final = 0.2
# Whoever has little more than the next is one of several.
LEAST_LEAD: Final = 1.5
_AMOUNTS: Final[Mapping[str, Callable[[float], str]]] = {
    "heap_byte_seconds": spread_of,
    "direct_byte_seconds": spread_of,
    "memory_wait_seconds": lambda seconds: duration(seconds * 1e6),
}


def ranking(rows: Sequence[Row], dimension: str, measure: str) -> list[Row]:
    """Return the rows of a ranking, the first of them first."""
    found = [row for row in rows if (row["dimension"], row["measure"]) == (dimension, measure)]
    return sorted(found, key=lambda row: int(row["rank"]))


def total(rows: Sequence[Row], measure: str) -> float:
    """Return the sum over all; 0 if there is none."""
    return float(sum(row["value"] for row in ranking(rows, EVERYBODY, measure)))


def several(rows: Sequence[Row], dimension: str) -> bool:
    """Return whether a dimension has more than one name: whoever is alone has all of everything."""
    return len(ranking(rows, dimension, "requests")) > 1


def outstanding(rows: Sequence[Row], dimension: str, measure: str) -> list[Row]:
    """Return the first of a ranking that stand out from the next: the fewest, and at most half of all names."""
    found = ranking(rows, dimension, measure)
    for most in range(1, len(ranking(rows, dimension, "requests")) // 2 + 1):
        first_ones, rest = found[:most], found[most:]
        if len(first_ones) < most or first_ones[-1]["name"] is None or first_ones[-1]["share"] < LEAST_SHARE:
            break
        if not rest or first_ones[-1]["value"] >= LEAST_LEAD * rest[0]["value"]:
            return first_ones
    return []


def first(rows: Sequence[Row], measure: str) -> str:
    """Name those who stand out by a measure, or say that nobody does, and where; empty if nobody has any of it."""
    if not total(rows, measure):
        return ""
    who, where = ([row for name in names for row in outstanding(rows, name, measure)] for names in (WHO, WHERE))
    ranked = [found[0] for name in WHO if several(rows, name) and (found := ranking(rows, name, measure))]
    # Of several dimensions the finest says most.
    leader = max(ranked, key=lambda row: len(ranking(rows, row["dimension"], "requests")), default=None)
    said = ", ".join(map(_named, who)) or "nobody stands out" + (f"; first is {_named(leader)}" if leader else "")
    return said + ("; where: " + ", ".join(map(_named, where)) if where else "")


def _named(row: Row) -> str:
    return f"the {words_of(row['dimension'])} {shown(row['name'])} ({_amount(row)}, {share(row['share'])})"


def _amount(row: Row) -> str:
    return _AMOUNTS.get(row["measure"], count)(float(row["value"]))


def ranks(caption: str, rows: Sequence[Row], dimension: str, measures: Iterable[str], most: int) -> Sheet:
    """Write rankings of a dimension beside each other; a measure that nobody has any of has no column."""
    columns = {MEASURES[name]: found for name in measures if (found := ranking(rows, dimension, name))}
    places = range(min(most, max(map(len, columns.values()), default=0)))
    cells = {title: partial(_at, found) for title, found in columns.items()}
    return sheet(caption, places, {"": lambda place: str(place + 1)} | cells, words=columns)


def _at(rows: Sequence[Row], place: int) -> str:
    if place >= len(rows):
        return ""
    return f"{shown(rows[place]['name'])}: {_amount(rows[place])} ({share(rows[place]['share'])})"


def as_json(facts: Facts) -> str:
    """Write what happened, the rankings, storms and the advice as JSON."""
    overview, found = facts.overview, facts.found
    said: dict[str, Any] = {
        "cluster": overview.cluster,
        "begin_us": overview.begin_us,
        "end_us": overview.end_us,
        "requests": overview.requests,
        "answered": overview.answered,
        "memory_wait_p99_us": facts.recorded.p99_us,
        "rankings": [
            {name: row[name] for name in ("dimension", "measure", "rank", "name", "value", "share")}
            for dimension in DIMENSIONS
            for measure in MEASURES
            for row in ranking(found.rankings or (), dimension, measure)
        ],
        "storms": found.storms or [],
        "advice": facts.advised.chosen,
    }
    return json.dumps(said, indent=1, default=str)
