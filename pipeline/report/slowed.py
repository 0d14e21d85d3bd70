"""Sections about overload: who was slowed, when and why, and what other marks would have done. Pure functions."""

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from pipeline.report import charts_future
from pipeline.report.clock import when
from pipeline.report.facts import Facts, Overview, Slowed
from pipeline.report.parts import Section, Sheet
from pipeline.report.units import NOTHING, count, duration, moment, plural, share, shown, size

__all__ = ["marks", "slowed"]

_SECOND: Final = 1_000_000


def slowed(facts: Facts) -> Section:
    """Show which topics and connections overload control slowed."""
    name, title = "slowed", "Who was slowed"
    found = facts.slowed
    if found is None:
        return Section(name, title, missing="Nobody has looked who was slowed yet: run the job usage.")
    if not len(found.hours):
        return Section(
            name, title,
            ("Nobody was slowed: no event says that overload control paused a connection or limited a topic.",),
        )  # fmt: skip
    return Section(name, title, tuple(_sentences(found)), sheets=tuple(_sheets(found)))


def _sentences(found: Slowed) -> Iterator[str]:
    did = found.hours[~found.hours["observed"].astype(bool)]
    would = found.hours[found.hours["observed"].astype(bool)]
    if not len(did):
        yield "Nobody was slowed in fact: the throttles only observed (ObserveOnly); see below what they would do."
    else:
        yield f"Overload control slowed producers in {plural(did['hour_start'].nunique(), 'hour')}: {_amount(did)}."
    if len(did) and len(would):
        yield f"In ObserveOnly it would have slowed more: {_amount(would)}."
    if len(found.topics):
        row = found.topics.iloc[0]
        yield (
            f"Longest slowed was {shown(row['topic'])}, for {_seconds(row['seconds'])}, to"
            f" {_part(row)} of its natural rate in the mean, because of {_why(row['reasons'])}."
        )
    if found.forgotten_count:
        yield (
            f"The throttle forgot {plural(found.forgotten_count, 'topic')} that nobody sent to any more, and with them"
            " their natural rates."
        )
    if found.topic_count > len(found.topics):
        yield f"Of {count(found.topic_count)} topics those that were slowed longest are shown."


def _amount(hours: pd.DataFrame) -> str:
    sums = hours.groupby("throttle")["seconds"].sum()
    words = {"adaptive": "topics limited", "threshold": "connections not read"}
    return ", ".join(f"{words[name]} for {_seconds(sums[name])}, summed" for name in words if name in sums.index)


def _sheets(found: Slowed) -> Iterator[Sheet]:
    if len(found.topics):
        rows = tuple(
            (
                shown(row["topic"]),
                "would have" if row["observed"] else "did",
                _seconds(row["seconds"]),
                _hours(row),
                _why(row["reasons"]),
                _permille(row["max_pressure_permille"]),
                _rates(row, "natural"),
                _rates(row, "allowed"),
                _part(row),
            )
            for _, row in found.topics.iterrows()
        )
        headers = (
            "topic", "slowed", "how long", "hours (UTC)", "why", "pressure", "natural /s", "allowed /s", "part",
        )  # fmt: skip
        yield Sheet(
            "Topics whose rate was limited, the longest first: bytes and messages a second, means",
            headers,
            rows,
            frozenset({2, 5, 6, 7, 8}),
        )
    hours = tuple(
        (
            moment(row["hour_start"]),
            "topics" if row["throttle"] == "adaptive" else "connections",
            "would have" if row["observed"] else "did",
            count(row["topics"]) if row["throttle"] == "adaptive" else count(row["most_connections"]),
            _seconds(row["seconds"]),
            _permille(row["max_pressure_permille"]),
            _permille(row["max_ratio_permille"]),
        )
        for _, row in found.hours.iterrows()
    )
    names = ("hour (UTC)", "what", "slowed", "how many", "how long, summed", "highest pressure", "most memory in use")
    yield Sheet("Hours in which producers were slowed", names, hours, frozenset({3, 4, 5, 6}))


def marks(facts: Facts, overview: Overview) -> Section:
    """Show what other marks of memory would have done."""
    name, title = "marks", "Other marks"
    if not len(facts.marks):
        return Section(
            name, title,
            missing="No other marks of memory were replayed: run the job whatif with --overload-high and"
            " --overload-low, over events of a proxy that has a throttle enabled.",
        )  # fmt: skip
    named = facts.marks.assign(
        marks=[f"{high:g} / {low:g}" for high, low in zip(facts.marks["high"], facts.marks["low"], strict=True)],
        when=[when(ms) for ms in facts.marks["at_ms"]],
        # A line must not go through times of which nothing is known.
        run=(facts.marks.groupby(["high", "low"])["bin"].diff() != 1).cumsum(),
    )
    rows, least = [], 1.0
    for each, frame in named.groupby("marks", sort=False):
        seconds = frame["seconds"].sum()
        least = min(least, frame["least"].min())
        rows.append(
            (
                str(each),
                *(_seconds(frame[column].sum()) for column in ("seconds", "pressed_seconds", "paused_seconds")),
                share(frame["max_pressure"].max()),
                share((frame["allowed_share"] * frame["seconds"]).sum() / seconds),
                share(frame["least"].min()),
            )
        )
    headers = (
        "high / low mark", "replayed", "with pressure", "connections paused", "highest pressure", "allowed, mean",
        "allowed, least",
    )  # fmt: skip
    text = f"{plural(len(rows), 'pair')} of marks over the recorded memory; topics keep at least {share(least)}."
    drawn = tuple(
        charts_future.marks_over_time(named, overview.clock, measure, text) for measure in ("pressure", "allowed_share")
    )
    sentences = (
        "The memory that was recorded, under other marks and the throttles' own rules: what pressure they see, and"
        " which part of its natural rate a topic may send.",
        "Memory is what it was: it does not fall because these marks slow somebody earlier, nor rise because they do"
        " not. Only decisions are recorded, so marks below those in force miss what came before the first of them:"
        " to try lower ones, have a proxy observe with them (ObserveOnly).",
    )
    sheet = Sheet(
        "What each pair of marks would have done, summed over proxies", headers, tuple(rows), frozenset(range(1, 7))
    )
    return Section(name, title, sentences, drawn, sheets=(sheet,))


def _seconds(seconds: float) -> str:
    return duration(float(seconds) * _SECOND)


def _hours(row: "pd.Series[Any]") -> str:
    return f"{row['begin']:%Y-%m-%d %H:00} to {row['end'] + pd.Timedelta(hours=1):%m-%d %H:00}"


def _rates(row: "pd.Series[Any]", kind: str) -> str:
    in_bytes, in_messages = row[f"{kind}_bytes_per_second"], row[f"{kind}_messages_per_second"]
    return f"{size(None if pd.isna(in_bytes) else in_bytes)}, {count(None if pd.isna(in_messages) else in_messages)}"


def _part(row: "pd.Series[Any]") -> str:
    natural, allowed = row["natural_bytes_per_second"], row["allowed_bytes_per_second"]
    return NOTHING if pd.isna(natural) or pd.isna(allowed) or natural <= 0 else share(min(1.0, allowed / natural))


def _why(reasons: object) -> str:
    names = {
        "memory": "memory of the proxy",
        "brokers": "the brokers' memory",
        "backlog": "its backlog",
        "recovery": "recovery",
    }
    # Reasons of several hours are joined, and so are those of an hour.
    return ", ".join(dict.fromkeys(names.get(name, name) for name in str(reasons).split(" and ")))


def _permille(value: float | None) -> str:
    return NOTHING if value is None or pd.isna(value) else share(float(value) / 1000)
