"""The summary at the top: what happened, who caused it, why requests waited, and what to set. Pure functions."""

import re
from collections.abc import Iterator
from typing import Final

import pandas as pd

from pipeline.report.clock import when
from pipeline.report.facts import Facts, Overview
from pipeline.report.future import chosen, times
from pipeline.report.parts import Section
from pipeline.report.units import NOTHING, about, count, duration, moment, plural, share, shown, size

__all__ = ["span", "summary"]

_AFTER_NUMBER: Final = re.compile(r"(?<=\d) ")


def summary(facts: Facts, overview: Overview) -> Section:
    """Say the most important in a few sentences."""
    sentences = (_happened(facts, overview), *_causes(facts), *_reasons(facts), *_to_do(facts, overview))
    return Section("summary", "Summary", sentences, tiles=_tiles(facts, overview))


def span(overview: Overview) -> str:
    """Write from when to when."""
    begin, end = (when(moment_us // 1_000_000 * 1000) for moment_us in (overview.begin_us, overview.end_us))
    return f"{begin} to {end} UTC"


def _tiles(facts: Facts, overview: Overview) -> tuple[tuple[str, str], ...]:
    waited, row = _waited(facts), chosen(facts)
    full = facts.fullness[["heap_share", "direct_share"]].astype(float).max().max() if len(facts.fullness) else None
    to_set = None if row is None else f"{size(row['heap_limit_bytes'])} and {size(row['direct_limit_bytes'])}"
    tiles = (
        ("requests", count(overview.requests)),
        ("not answered", share(overview.refused / max(overview.requests, 1))),
        ("99 % of the answered waited for memory at most", NOTHING if waited is None else about(waited)),
        ("memory in use at the fullest proxy, of its limit", share(full)),
        ("heap and direct memory to set", to_set or "no advice"),
    )
    # A number and its unit are one word.
    return tuple((label, _AFTER_NUMBER.sub("\u00a0", value)) for label, value in tiles)


def _waited(facts: Facts) -> float | None:
    whole = facts.waits[facts.waits["bin"].isna()] if len(facts.waits) else facts.waits
    return float(whole.iloc[0]["p99_us"]) if len(whole) else None


def _happened(facts: Facts, overview: Overview) -> str:
    p99_us = _waited(facts)
    waited = "" if p99_us is None else f"; 99 % of the answered ones waited at most {about(p99_us)} for memory"
    ended = (
        "all were answered"
        if not overview.refused
        else f"{count(overview.refused)} ({share(overview.refused / max(overview.requests, 1))}) were not answered"
    )
    return (
        f"What happened: {plural(overview.requests, 'request')} for topic lists of"
        f" {plural(overview.namespaces, 'namespace')} came to {plural(overview.proxies, 'proxy', 'proxies')};"
        f" {ended}{waited}."
    )


def _causes(facts: Facts) -> Iterator[str]:
    if len(facts.storms):
        storm = facts.storms.sort_values("requests", ascending=False).iloc[0]
        yield (
            f"The largest storm began at {moment(storm['begin'])}: {count(storm['requests'])} requests of"
            f" {plural(int(storm['clients']), 'connection')} within {duration(storm['arrival_seconds'] * 1e6)},"
            " the last of"
            f" them served or refused after {duration(storm['served_seconds'] * 1e6)}."
        )
    if not len(facts.top_costs):
        return
    first = facts.top_costs[(facts.top_costs["measure"] == "heap_byte_seconds") & (facts.top_costs["rank"] == 1)]
    named = [
        f"the {row['dimension'].replace('_', ' ')} {shown(row['name'])} ({share(row['share'])})"
        for _, row in first.iterrows()
        if row["value"] > 0 and pd.notna(row["name"])
    ]
    if named:
        yield f"Who caused it: most heap memory for longest was booked by {', '.join(named)}."


def _reasons(facts: Facts) -> Iterator[str]:
    for kind, frame in facts.memory.groupby("kind", sort=False):
        wanted = frame["held_mib"] + frame["waiting_mib"]
        limited = frame["limit_mib"] > 0
        if not limited.any() or not (frame["waiting_mib"] > 0).any():
            continue
        times = (wanted[limited] / frame.loc[limited, "limit_mib"]).max()
        if times < 1:
            continue
        yield (
            f"Why requests waited: {kind} memory. In use and waited for together came to {times:.1f} times the limit"
            f" (largest mean of an interval)."
        )


def _to_do(facts: Facts, overview: Overview) -> Iterator[str]:
    row = chosen(facts)
    if row is not None:
        yield (
            f"What to set, for {row['load']} x the recorded load: {size(row['heap_limit_bytes'])} of heap"
            f" (now {_limit(overview.heap_limit)}) and {size(row['direct_limit_bytes'])} of direct memory"
            f" (now {_limit(overview.direct_limit)}), {times(row['fleet'])}. The fragment of proxy.conf is"
            " under Advice."
        )
    elif len(facts.advice):
        yield "What to set: none of the limits that were tried holds the target; see Advice."
    else:
        yield "What to set: no advice was given; see Advice for the reason."


def _limit(bytes_: int) -> str:
    return size(bytes_) if bytes_ else "no limit"
