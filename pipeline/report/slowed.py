"""Sections about overload: who was slowed, when and why, and what other marks would have done. Pure functions."""

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


@section("marks", "Other marks")
def marks(facts: Facts, overview: Overview) -> Iterator[Part]:
    """Show what other marks of memory would have done."""
    if not len(facts.marks):
        yield Missing(
            "No other marks of memory were replayed: run the job whatif with --overload-high and --overload-low, over"
            " events of a proxy that has a throttle enabled."
        )
        return
    named = facts.marks.assign(
        marks=[f"{high:g} / {low:g}" for high, low in zip(facts.marks["high"], facts.marks["low"], strict=True)],
        when=[when(ms) for ms in facts.marks["at_ms"]],
        # A line must not go through times of which nothing is known.
        run=(facts.marks.groupby(["high", "low"])["bin"].diff() != 1).cumsum(),
        allowed=facts.marks["allowed_share"] * facts.marks["seconds"],
    )
    sums = dict.fromkeys(("seconds", "pressed_seconds", "paused_seconds", "allowed"), "sum")
    whole = named.groupby("marks", sort=False).agg(sums | {"max_pressure": "max", "least": "min"}).reset_index()
    whole["allowed"] /= whole["seconds"]
    yield (
        "The memory that was recorded, under other marks and the throttles' own rules: what pressure they see, and"
        " which part of its natural rate a topic may send."
    )
    yield (
        "Memory is what it was: it does not fall because these marks slow somebody earlier, nor rise because they do"
        " not. Only decisions are recorded, so marks below those in force miss what came before the first of them:"
        " to try lower ones, have a proxy observe with them (ObserveOnly)."
    )
    least = share(min(1.0, whole["least"].min()))
    text = f"{plural(len(whole), 'pair')} of marks over the recorded memory; topics keep at least {least}."
    for measure in ("pressure", "allowed_share"):
        yield charts.marks_over_time(named, overview.clock, measure, text)
    yield sheet(
        "What each pair of marks would have done, summed over proxies",
        rows_of(whole),
        {
            "high / low mark": cell(str, "marks"),
            "replayed": cell(_seconds, "seconds"),
            "with pressure": cell(_seconds, "pressed_seconds"),
            "connections paused": cell(_seconds, "paused_seconds"),
            "highest pressure": cell(share, "max_pressure"),
            "allowed, mean": cell(share, "allowed"),
            "allowed, least": cell(share, "least"),
        },
        words=("high / low mark",),
    )


def _seconds(seconds: float) -> str:
    return duration(float(seconds) * _SECOND)


def _did(row: Row) -> str:
    return "would have" if row["observed"] else "did"


def _hours(row: Row) -> str:
    return f"{row['begin']:%Y-%m-%d %H:00} to {row['end'] + pd.Timedelta(hours=1):%m-%d %H:00}"


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
