"""The section about overload: who was slowed, when and why. Pure functions."""

from collections.abc import Iterator, Sequence
from typing import Final

import pandas as pd

from pipeline.report.clock import when
from pipeline.report.facts import Facts
from pipeline.report.parts import Missing, Part, Row, cell, section, sheet
from pipeline.report.units import NOTHING, count, duration, plural, share, shown, size

_SECOND: Final = 1_000_000
_HOUR_US: Final = 3600 * _SECOND
_WHY: Final = {"memory": "memory of the proxy", "brokers": "the brokers' memory", "backlog": "its backlog"}


@section("slowed", "Who was slowed")
def slowed(facts: Facts) -> Iterator[Part]:
    """Show which topics and connections overload control slowed."""
    found = facts.found.slowed
    if found is None:
        yield Missing("Nobody has looked who was slowed yet: run the job usage.")
        return
    if not found:
        yield "Nobody was slowed: no event says that overload control paused a connection or limited a topic."
        return
    topics = [row for row in found if row["topic"] is not None]
    connections = [row for row in found if row["topic"] is None]
    if all(row["observed"] for row in found):
        yield "Nobody was slowed in fact: the throttles only observed (ObserveOnly). This is what they would have done."
    yield from _connections(connections)
    if not topics:
        return
    longest = "would have been slowed" if topics[0]["observed"] else "slowed was"
    yield (
        f"Longest {longest} {shown(topics[0]['topic'])}, for {_seconds(topics[0]['seconds'])}, to"
        f" {_part(topics[0])} of its natural rate in the mean, because of {_why(topics[0]['reasons'])}."
    )
    if topics[0]["of_all"] > len(topics):
        yield f"{plural(topics[0]['of_all'], 'topic')} were slowed; those that were for longest are shown."
    yield sheet(
        "Topics whose rate was limited, the longest first: how long, summed over proxies; bytes and messages a second"
        " at one proxy, means",
        topics,
        {
            "topic": cell(shown, "topic"),
            "slowed": lambda row: "would have been" if row["observed"] else "was",
            "how long": cell(_seconds, "seconds"),
            "hours (UTC)": _hours,
            "why": cell(_why, "reasons"),
            "pressure": cell(_permille, "max_pressure_permille"),
            "natural /s": lambda row: _rates(row, "natural"),
            "allowed /s": lambda row: _rates(row, "allowed"),
            "part": _part,
        },
        words=("topic", "slowed", "hours (UTC)", "why"),
    )


def _connections(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        did = "would have been" if row["observed"] else "were"
        yield (
            f"Connections {did} paused, {_hours(row)}: up to {count(row['most_connections'])} at a time at one proxy,"
            f" for {_seconds(row['seconds'])} summed over all, when at most {_permille(row['max_ratio_permille'])} of"
            " the limit was in use."
        )


def _seconds(seconds: float) -> str:
    return duration(float(seconds) * _SECOND)


def _hours(row: Row) -> str:
    begin, end = (when(us // 1000)[:16] for us in (row["begin_us"], row["end_us"] + _HOUR_US))
    return f"{begin} to {end}"


def _rates(row: Row, kind: str) -> str:
    return f"{size(row[f'{kind}_bytes_per_second'])}, {count(row[f'{kind}_messages_per_second'])}"


def _part(row: Row) -> str:
    natural, allowed = row["natural_bytes_per_second"], row["allowed_bytes_per_second"]
    return NOTHING if pd.isna([natural, allowed]).any() or natural <= 0 else share(min(1.0, allowed / natural))


def _why(reasons: str) -> str:
    # Reasons of several hours are joined, and so are those of an hour.
    return ", ".join(dict.fromkeys(_WHY.get(name, name) for name in reasons.split(" and ")))


def _permille(value: float | None) -> str:
    return NOTHING if pd.isna(value) else share(value / 1000)
