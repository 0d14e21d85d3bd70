"""Sections about what happened: memory, waits and refusals, storms, who did it, and how good the data is. Pure.

Rule: a section without data says which job would bring it.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import pandas as pd

from pipeline.report import charts
from pipeline.report.clock import second, when
from pipeline.report.facts import MEASURES, MOST_TOP, Facts
from pipeline.report.parts import Missing, Part, Row, Sheet, cell, rows_of, section, sheet
from pipeline.report.rankings import DIMENSIONS, ranks, several, total
from pipeline.report.units import about, count, duration, limit, plural, share, shown, size, spread_of, words_of

_SECOND: Final = 1_000_000


@section("memory", "Memory")
def memory(facts: Facts) -> Iterator[Part]:
    """Show memory over time against its limits, and the most that was held."""
    overview, recorded = facts.overview, facts.recorded
    whose = (
        "at one proxy; limits were not the same everywhere, or changed" if overview.limits_differ else "for each proxy"
    )
    limits = {"heap": overview.heap_limit, "direct": overview.direct_limit}
    yield (
        f"The limits in force at the end were {limit(limits['heap'])} of heap and {limit(limits['direct'])} of direct"
        f" memory {whose}."
    )
    for kind, frame in recorded.memory.groupby("kind", sort=False):
        most, waited = frame["held_mib"].max(), frame["waiting_mib"].max()
        text = (
            f"{str(kind).capitalize()} memory of all proxies: at most {most:,.1f} MiB in use and {waited:,.1f} MiB"
            f" waited for, mean of {duration(overview.clock.step_us)}."
        )
        yield charts.memory(frame, overview.clock, str(kind), text)
    frame = recorded.memory.reset_index(drop=True)
    wanted = (frame["held_mib"] + frame["waiting_mib"]).groupby(frame["kind"], sort=False)
    yield sheet(
        "The busiest interval of each kind of memory, over all proxies",
        rows_of(frame.loc[wanted.idxmax()]),
        {
            "memory": cell(str, "kind"),
            "busiest interval (UTC)": cell(when, "at_ms"),
            "in use": cell("{:,.1f} MiB".format, "held_mib"),
            "waited for": cell("{:,.1f} MiB".format, "waiting_mib"),
            "limit": lambda row: f"{row['limit_mib']:,.1f} MiB" if row["limit_mib"] else "none",
        },
        words=("memory", "busiest interval (UTC)"),
    )
    yield sheet(
        "The most that one proxy held at one time",
        sorted(recorded.peaks.items(), reverse=True, key=lambda one: one[0][1]),
        {
            "memory": lambda one: one[0][1],
            "held by": lambda one: "topic lists" if one[0][0] == "lists" else "watch frames",
            "at most": lambda one: size(one[1]),
            "limit of a proxy": lambda one: "differs" if overview.limits_differ else limit(limits[one[0][1]]),
        },
        words=("memory", "held by"),
    )


@section("waits", "Waits and refusals")
def waits(facts: Facts) -> Iterator[Part]:
    """Show how long requests waited for memory, what was not answered, and why."""
    overview, recorded = facts.overview, facts.recorded
    if recorded.p99_us is None:
        yield Missing("No topic list was asked for, so there are no waits to show.")
        return
    half = f"waited at most {about(recorded.p50_us)}" if recorded.p50_us else "did not wait"
    text = (
        f"Half of the requests {half} for memory, 99 % of all waited at most {about(recorded.p99_us)} (from buckets:"
        f" within 9 %); the longest wait was {duration(overview.longest_wait_us)}."
    )
    yield text
    yield charts.waits(recorded.waits, overview.clock, text)
    bad = recorded.endings[recorded.endings["reason"] != "ok"]
    if not len(bad):
        yield f"Every one of the {count(overview.requests)} requests was answered."
        return
    totals = bad.groupby("reason")["requests"].sum().sort_values(ascending=False)
    often = ", ".join(f"{words_of(name)} ({count(number)})" for name, number in totals.head(3).items())
    text = (
        f"{count(overview.unanswered)} of {count(overview.requests)} requests were not answered; most often: {often}."
    )
    yield text
    reasons = [overview.clock.whole(rows).assign(what=words_of(reason)) for reason, rows in _by_bin(bad)]
    yield charts.refusals(pd.concat(reasons).rename(columns={"requests": "value"}), overview.clock, text)
    yield sheet(
        "Requests that were not answered",
        totals.items(),
        {
            "reason": lambda one: words_of(one[0]),
            "requests": lambda one: count(one[1]),
            "of all": lambda one: share(one[1] / overview.requests),
        },
        words=("reason",),
    )


def _by_bin(endings: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for reason, rows in endings.groupby("reason"):
        yield str(reason), rows[["bin", "requests"]]


@section("storms", "Storms")
def storms(facts: Facts) -> Iterator[Part]:
    """Show arrivals, and the bursts among them."""
    found, clock = facts.found.storms, facts.overview.clock
    number = found[0]["of_all"] if found else 0
    text = (
        "Nobody has looked for storms yet: run the job storms."
        if found is None
        else "No storm was found: no burst with far more arrivals than usual."
        if not found
        else f"{plural(number, 'storm')} {'was' if number == 1 else 'were'} found: bursts with far more arrivals than"
        " usual."
    )
    if found and number > len(found):
        text += f" The {len(found)} with most requests are shown, in the order of time."
    yield text
    rates = clock.whole(facts.recorded.endings.groupby("bin")[["requests"]].sum().reset_index())
    rates = rates.assign(value=rates["requests"] / (clock.step_us / _SECOND))
    alt = f"Requests a second over time, mean of an interval at most {rates['value'].max():,.1f}. {text}"
    yield charts.arrivals(rates, _bands(found or ()), clock, alt)
    if not found:
        return
    numbered = [{**row, "number": number} for number, row in enumerate(found, 1)]
    yield sheet(
        "Storms: how long requests arrived, until when all had ended, how large",
        numbered,
        {
            "": cell(str, "number"),
            "begin (UTC)": cell(second, "begin_us"),
            "arrivals": lambda row: duration(row["arrival_seconds"] * _SECOND),
            "all ended": lambda row: duration(row["served_seconds"] * _SECOND),
            "requests": cell(count, "requests"),
            "peak /s": cell(count, "peak_rate"),
            "refused": cell(count, "refused"),
            "longest wait for memory": cell(duration, "max_memory_wait_us"),
            "longest queue on arrival": lambda row: count(max(row["max_heap_queue_len"], row["max_direct_queue_len"])),
        },
        words=("begin (UTC)",),
    )
    yield sheet(
        "Who came in each storm: those with most requests",
        numbered,
        {"": cell(str, "number")} | {words_of(dimension): partial(_came, dimension) for dimension in DIMENSIONS},
        words=[words_of(dimension) for dimension in DIMENSIONS],
    )


def _came(dimension: str, storm: Row) -> str:
    came = [row for row in storm["members"] if row["dimension"] == dimension]
    return ", ".join(f"{shown(row['name'])} ({count(row['requests'])})" for row in came)


def _bands(found: Sequence[Row]) -> pd.DataFrame:
    begins = [row["begin_us"] / 1000 for row in found]
    ends = [begin + max(1, row["served_seconds"] * 1000) for begin, row in zip(begins, found, strict=True)]
    return pd.DataFrame({"begin_ms": begins, "end_ms": ends})


@section("who", "Who costs how much")
def who(facts: Facts) -> Iterator[Part]:
    """Show who cost most, who waited and was refused most, and what sharing saved."""
    rankings = facts.found.rankings
    if rankings is None:
        yield Missing("Nobody has added up costs yet: run the job usage.")
        return
    yield (
        "Heap and direct memory are byte-seconds: how much was held, times how long. A large list that leaves at once"
        " is cheap, a small one that a slow reader keeps is not. A shared answer costs once, whoever was the last of"
        " its group to end."
    )
    alone = [words_of(dimension) for dimension in DIMENSIONS if not several(rankings, dimension)]
    if alone:
        yield f"Nothing to rank where there is only one: {', '.join(alone)}."
    for dimension in DIMENSIONS:
        if several(rankings, dimension):
            what = f"Most by {words_of(dimension)}: who, how much, and which part of all"
            yield ranks(what, rankings, dimension, MEASURES, MOST_TOP)
    if not total(rankings, "questions_saved"):
        yield "No answer was shared, so nothing was saved."
        return
    sums = {
        name: total(rankings, name) for name in ("coalesced", "requests", "questions_saved", "upstream_bytes_saved")
    }
    yield (
        f"{count(sums['coalesced'])} of {count(sums['requests'])} requests shared the answer of another:"
        f" {count(sums['questions_saved'])} questions were not asked, {size(sums['upstream_bytes_saved'])} not fetched"
        f" from brokers, and at most {spread_of(total(rankings, 'heap_byte_seconds_saved'))} of heap not held."
    )


@section("quality", "Data quality")
def quality(facts: Facts) -> Iterator[Part]:
    """Show what was set aside, lost, or imputed."""
    overview = facts.overview
    imputed = next((row["imputed_share"] for row in facts.advised.calibration if not row["proxy_id"]), None)
    figures = {
        "requests": count(overview.requests),
        "watch frames": count(overview.watch_frames),
        "proxies": count(overview.proxies),
        "starts of proxies": count(overview.starts),
        "events lost before they were written": count(overview.dropped),
        "requests whose size or times were imputed": share(imputed),
        **{f"set aside: {words_of(row['reason'])}": count(row["copies"]) for row in facts.found.quarantine},
    }
    always = " and of all time" if facts.period else ""
    yield (
        "Some of what was read is no event and is in the table `quarantine`, with the reason and the text; of all"
        f" clusters{always}, since a text that is no event names none."
        if facts.found.quarantine
        else "Nothing was set aside: every event that was read is in the tables."
    )
    if overview.dropped:
        yield (
            "Proxies lost events because their log could not keep up: totals here are too low by so many. Give the"
            " event log more memory or a faster disk (eventLogBufferMB)."
        )
    yield Sheet("What the figures rest on", ("what", "how many"), tuple(figures.items()), frozenset({1}))
