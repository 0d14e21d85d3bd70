"""Sections about overload: who was slowed, when and why. Pure functions."""

from collections.abc import Iterator
from typing import Final

import pandas as pd

from pipeline.report import charts
from pipeline.report.clock import when
from pipeline.report.facts import Facts, Overview
from pipeline.report.parts import Missing, Part, Row, cell, rows_of, section, sheet
from pipeline.report.units import NOTHING, count, duration, moment, plural, share, shown, size

_SECOND: Final = 1_000_000
_WHY: Final = {"memory": "memory of the proxy", "brokers": "the brokers' memory", "backlog": "its backlog"}


@section("slowed", "Who was slowed")
def slowed(facts: Facts) -> Iterator[Part]:
    """Show which topics and connections overload control slowed."""
    found = facts.slowed
    if found is None:
        yield Missing("Nobody has looked who was slowed yet: run the job usage.")
        return
    if not len(found.hours):
        yield "Nobody was slowed: no event says that overload control paused a connection or limited a topic."
        return
    yield from _amounts(found.hours)
    topics = rows_of(found.topics)
    if topics:
        yield (
            f"Longest slowed was {shown(topics[0]['topic'])}, for {_seconds(topics[0]['seconds'])}, to"
            f" {_part(topics[0])} of its natural rate in the mean, because of {_why(topics[0]['reasons'])}."
        )
    if found.forgotten_count:
        yield (
            f"The throttle forgot {plural(found.forgotten_count, 'topic')} that nobody sent to any more, and with them"
            " their natural rates."
        )
    if found.topic_count > len(topics):
        yield f"Of {count(found.topic_count)} topics those that were slowed longest are shown."
    if topics:
        yield sheet(
            "Topics whose rate was limited, the longest first: bytes and messages a second, means",
            topics,
            {
                "topic": cell(shown, "topic"),
                "slowed": _did,
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
    yield sheet(
        "Hours in which producers were slowed",
        rows_of(found.hours),
        {
            "hour (UTC)": cell(moment, "hour_start"),
            "what": lambda row: "topics" if row["throttle"] == "adaptive" else "connections",
            "slowed": _did,
            "how many": lambda row: count(row["topics" if row["throttle"] == "adaptive" else "most_connections"]),
            "how long, summed": cell(_seconds, "seconds"),
            "highest pressure": cell(_permille, "max_pressure_permille"),
            "most memory in use": cell(_permille, "max_ratio_permille"),
        },
        words=("hour (UTC)", "what", "slowed"),
    )


def _amounts(hours: pd.DataFrame) -> Iterator[str]:
    observed = hours["observed"].astype(bool)
    did, would = hours[~observed], hours[observed]
    if not len(did):
        yield "Nobody was slowed in fact: the throttles only observed (ObserveOnly); see below what they would do."
    else:
        yield f"Overload control slowed producers in {plural(did['hour_start'].nunique(), 'hour')}: {_amount(did)}."
    if len(did) and len(would):
        yield f"In ObserveOnly it would have slowed more: {_amount(would)}."


def _amount(hours: pd.DataFrame) -> str:
    sums = hours.groupby("throttle")["seconds"].sum()
    words = {"adaptive": "topics limited", "threshold": "connections not read"}
    return ", ".join(f"{words[name]} for {_seconds(sums[name])}, summed" for name in words if name in sums.index)
