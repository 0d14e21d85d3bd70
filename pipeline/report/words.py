"""The summary at the top: what happened, who caused it, why requests waited, and what to set. Pure functions."""

import re
from collections.abc import Iterator
from typing import Final

import pandas as pd

from pipeline.report.clock import when
from pipeline.report.facts import Facts, Overview
from pipeline.report.future import chosen, times
from pipeline.report.parts import Part, Tile, rows_of, section
from pipeline.report.units import NOTHING, about, count, duration, limit, moment, plural, share, shown, size

_AFTER_NUMBER: Final = re.compile(r"(?<=\d) ")


@section("summary", "Summary")
def summary(facts: Facts, overview: Overview) -> Iterator[Part]:
    """Yield the most important facts in a few sentences, and tiles before them."""
    yield from _tiles(facts, overview)
    if facts.period:
        yield (
            f"Requests, waits, refusals and memory are those of the events from {facts.period}. Storms, costs, sharing,"
            " who was slowed, what-if and advice are of what their jobs were given: run those for the same events, too."
        )
    yield _happened(facts, overview)
    yield from _causes(facts)
    yield from _reasons(facts)
    yield _to_do(facts, overview)


def span(overview: Overview) -> str:
    """Write from when to when."""
    begin, end = (when(moment_us // 1_000_000 * 1000) for moment_us in (overview.begin_us, overview.end_us))
    return f"{begin} to {end} UTC"


def _tiles(facts: Facts, overview: Overview) -> Iterator[Tile]:
    waited, row = facts.whole_waits, chosen(facts)
    full = facts.fullness[["heap_share", "direct_share"]].astype(float).max().max()
    to_set = None if row is None else f"{size(row['heap_limit_bytes'])} and {size(row['direct_limit_bytes'])}"
    tiles = {
        "requests": count(overview.requests),
        "not answered": share(overview.refused / max(overview.requests, 1)),
        "99 % of the answered waited for memory at most": NOTHING if waited is None else about(waited["p99_us"]),
        "memory in use at the fullest proxy, of its limit": share(full),
        "heap and direct memory to set": to_set or "no advice",
    }
    for label, value in tiles.items():
        # A number and its unit are one word.
        yield Tile(label, _AFTER_NUMBER.sub("\u00a0", value))


def _happened(facts: Facts, overview: Overview) -> str:
    row = facts.whole_waits
    waited = "" if row is None else f"; 99 % of the answered ones waited at most {about(row['p99_us'])} for memory"
    refused = f"{count(overview.refused)} ({share(overview.refused / max(overview.requests, 1))})"
    ended = f"{refused} were not answered" if overview.refused else "all were answered"
    return (
        f"What happened: {plural(overview.requests, 'request')} for topic lists of"
        f" {plural(overview.namespaces, 'namespace')} came to {plural(overview.proxies, 'proxy', 'proxies')};"
        f" {ended}{waited}."
    )


def _causes(facts: Facts) -> Iterator[str]:
    if len(facts.storms):
        storm = rows_of(facts.storms.nlargest(1, "requests"))[0]
        yield (
            f"The largest storm began at {moment(storm['begin'])}: {count(storm['requests'])} requests of"
            f" {plural(int(storm['clients']), 'connection')} within {duration(storm['arrival_seconds'] * 1e6)}, the"
            f" last of them served or refused after {duration(storm['served_seconds'] * 1e6)}."
        )
    named = ", ".join(
        f"the {row['dimension'].replace('_', ' ')} {shown(row['name'])} ({share(row['share'])})"
        for row in rows_of(facts.top_costs)
        if (row["measure"], row["rank"]) == ("heap_byte_seconds", 1) and row["value"] > 0 and pd.notna(row["name"])
    )
    if named:
        yield f"Who caused it: most heap memory for longest was booked by {named}."


def _reasons(facts: Facts) -> Iterator[str]:
    for kind, frame in facts.memory.groupby("kind", sort=False):
        wanted = frame["held_mib"] + frame["waiting_mib"]
        most = (wanted / frame["limit_mib"])[frame["limit_mib"] > 0].max()
        if most >= 1 and (frame["waiting_mib"] > 0).any():
            yield (
                f"Why requests waited: {kind} memory. In use and waited for together came to {most:.1f} times the limit"
                " (largest mean of an interval)."
            )


def _to_do(facts: Facts, overview: Overview) -> str:
    row = chosen(facts)
    if row is not None:
        return (
            f"What to set, for {row['load']} x the recorded load: {size(row['heap_limit_bytes'])} of heap"
            f" (now {limit(overview.heap_limit)}) and {size(row['direct_limit_bytes'])} of direct memory"
            f" (now {limit(overview.direct_limit)}), {times(row['fleet'])}. The fragment of proxy.conf is under Advice."
        )
    if len(facts.advice):
        return "What to set: none of the limits that were tried holds the target; see Advice."
    return "What to set: no advice was given; see Advice for the reason."
