"""Sections about what happened: memory, waits, refusals, costs, storms, sharing, and how good the data is.

Rule: pure functions from facts to sections; a section without data says which job would bring it.
"""

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from pipeline.report import charts, charts_future
from pipeline.report.facts import Facts, Overview
from pipeline.report.parts import Chart, Section, Sheet
from pipeline.report.units import (
    about,
    count,
    distinct,
    duration,
    moment,
    share,
    shown,
    size,
    spread_of,
    words_of,
)  # fmt: skip

__all__ = ["costs", "demand", "quality", "refusals", "sharing", "storms", "waits"]

_DIMENSIONS: Final = {
    "tenant": "tenant",
    "namespace": "namespace",
    "principal": "principal",
    "client_version": "client version",
}
_MEASURES: Final = {
    "heap_byte_seconds": "heap",
    "direct_byte_seconds": "direct",
    "requests": "requests",
    "refused": "refused",
}
_QUANTILES: Final = {"p50_us": "p50", "p95_us": "p95", "p99_us": "p99"}
_SECOND: Final = 1_000_000


def demand(facts: Facts, overview: Overview) -> Section:
    """Show memory over time against its limits."""
    section = Section("demand", "Demand and limits")
    drawn: list[Chart] = []
    whose = "of one proxy" if overview.limits_differ else "for each proxy"
    sentences = [
        f"The limits in force at the end were {_limit(overview.heap_limit)} of heap and"
        f" {_limit(overview.direct_limit)} of direct memory {whose}."
    ]
    if overview.limits_differ:
        sentences.append("Other proxies had other limits; these are of the one that was heard last.")
    for kind in ("heap", "direct"):
        frame = facts.memory[facts.memory["kind"] == kind]
        most, waited = frame["held_mib"].max(), frame["waiting_mib"].max()
        text = (
            f"{kind.capitalize()} memory over time: at most {most:,.1f} MiB in use and {waited:,.1f} MiB waited"
            " for, mean of"
            f" {duration(overview.clock.step_us)}."
        )
        sentences.append(text)
        drawn.append(charts.memory(frame, overview.clock, kind, text))
    full = _fullness(facts, overview)
    if len(full):
        highest = full.groupby("kind")["share"].max()
        text = "Highest use on arrival: " + ", ".join(f"{kind} {share(highest[kind])}" for kind in highest.index) + "."
        drawn.append(charts.fullness(full, overview.clock, text))
    return Section(section.name, section.title, tuple(sentences), tuple(drawn), sheets=(_demand_sheet(facts),))


def _limit(bytes_: int) -> str:
    return size(bytes_) if bytes_ else "no limit"


def _fullness(facts: Facts, overview: Overview) -> pd.DataFrame:
    whole = overview.clock.whole(facts.fullness, None)
    long = _with_runs(whole.melt(["bin", "at_ms", "when"], ["heap_share", "direct_share"], "kind", "share"), "share")
    return long.assign(kind=long["kind"].str.removesuffix("_share"), share=long["share"].astype(float))


def _with_runs(long: pd.DataFrame, value: str) -> pd.DataFrame:
    """Leave out the bins without a value and number what lies between them: a line must not go through them."""
    known = long.dropna(subset=[value])
    return known.assign(run=(known["bin"].diff() != 1).cumsum()).drop(columns="bin")


def _demand_sheet(facts: Facts) -> Sheet:
    rows = []
    for kind, frame in facts.memory.groupby("kind", sort=False):
        busiest = frame.loc[(frame["held_mib"] + frame["waiting_mib"]).idxmax()]
        rows.append(
            (
                str(kind),
                str(busiest["when"]),
                *(f"{busiest[name]:,.1f} MiB" for name in ("held_mib", "waiting_mib")),
                f"{busiest['limit_mib']:,.1f} MiB" if busiest["limit_mib"] else "none",
            )
        )
    headers = ("memory", "busiest interval (UTC)", "in use", "waited for", "limit of all proxies")
    return Sheet("The busiest interval of each kind of memory", headers, tuple(rows), frozenset({2, 3, 4}))


def waits(facts: Facts, overview: Overview) -> Section:
    """Show how long answered requests waited for memory."""
    section = Section("waits", "Waits")
    whole = facts.waits[facts.waits["bin"].isna()] if len(facts.waits) else facts.waits
    if not len(whole):
        return _without(section, "No request was answered, so there are no waits to show.")
    row = whole.iloc[0]
    sentence = (
        f"Half of the answered requests waited at most {about(row['p50_us'])} for memory, 99 % at most"
        f" {about(row['p99_us'])}; the longest wait was {about(row['max_us'])} (from buckets: within 9 %)."
    )
    bins = overview.clock.whole(facts.waits[facts.waits["bin"].notna()].astype({"bin": int}), None)
    long = _with_runs(bins.melt(["bin", "at_ms", "when"], list(_QUANTILES), "quantile", "us"), "us")
    long = long.assign(seconds=long["us"] / _SECOND).replace({"quantile": _QUANTILES}).drop(columns="us")
    sheet = Sheet(
        "Waits of answered requests for memory, whole time",
        ("answered", "p50", "p95", "p99", "longest"),
        ((count(row["count"]), *(duration(row[name]) for name in (*_QUANTILES, "max_us"))),),
        frozenset(range(5)),
    )
    return Section(
        section.name, section.title, (sentence,), (charts.waits(long, overview.clock, sentence),), sheets=(sheet,)
    )


def refusals(facts: Facts, overview: Overview) -> Section:
    """Show what was not answered, and why."""
    section = Section("refusals", "Refusals")
    bad = facts.endings[facts.endings["reason"] != "ok"] if len(facts.endings) else facts.endings
    if not len(bad):
        return _without(section, f"Every one of the {count(overview.requests)} requests was answered.")
    bins = pd.DataFrame({"bin": range(overview.clock.bins), "at_ms": overview.clock.begin_ms})
    frame = overview.clock.whole(bins[["bin"]])[["bin", "at_ms", "when"]].merge(bad, on="bin")
    frame = frame.assign(
        end_ms=frame["at_ms"] + max(overview.clock.step_us // 1000, 1), reason=frame["reason"].map(words_of)
    )
    totals = bad.groupby("reason")["requests"].sum().sort_values(ascending=False)
    sentence = (
        f"{count(overview.refused)} of {count(overview.requests)} requests were not answered; most often: "
        + ", ".join(f"{words_of(name)} ({count(number)})" for name, number in totals.head(3).items())
    )
    rows = tuple((words_of(name), count(number), share(number / overview.requests)) for name, number in totals.items())
    sheet = Sheet("Requests that were not answered", ("reason", "requests", "of all"), rows, frozenset({1, 2}))
    return Section(
        section.name,
        section.title,
        (f"{sentence}.",),
        (charts.refusals(frame, overview.clock, f"{sentence}."),),
        sheets=(sheet,),
    )


def costs(facts: Facts) -> Section:
    """Show who cost most."""
    section = Section("costs", "Who costs how much")
    if not len(facts.top_costs):
        return _without(section, "Nobody has added up costs yet: run the job usage.")
    drawn, sheets = [], []
    for dimension, title in _DIMENSIONS.items():
        of_it = facts.top_costs[facts.top_costs["dimension"] == dimension]
        if not len(of_it):
            continue
        sheets.append(_cost_sheet(of_it, title))
        heap = of_it[(of_it["measure"] == "heap_byte_seconds") & (of_it["value"] > 0)]
        if len(heap) > 1:
            drawn.append(_cost_bars(heap, dimension, title))
    sentences = (
        "Costs are byte-seconds: how much memory was booked, times how long. A large list that leaves at once"
        " is cheap, a small"
        " one that a slow reader keeps is not. A shared answer costs once, whoever was the last of its group to end.",
    )
    return Section(section.name, section.title, sentences, tuple(drawn), sheets=tuple(sheets))


def _cost_bars(heap: pd.DataFrame, dimension: str, title: str) -> Chart:
    first = heap.iloc[0]
    frame = pd.DataFrame({"who": distinct(heap["name"].map(shown)), "value": heap["value"] / 2**20})
    text = f"Heap byte-seconds by {title}; {shown(first['name'])} has most, {share(first['share'])} of all."
    return charts_future.bars(
        f"cost-{dimension.replace('_', '-')}",
        f"Heap by {title}",
        frame,
        "MiB seconds",
        text,
        f"The {title}s that booked most heap memory for longest. One that stands out is whom to ask first; if"
        " one has most of"
        " all, shares (topicListFairness) or a cap protect the others.",
    )


def _cost_sheet(of_it: pd.DataFrame, title: str) -> Sheet:
    rows = []
    ranks = sorted(of_it["rank"].unique())
    for rank in ranks:
        cells = [str(rank)]
        for measure in _MEASURES:
            found = of_it[(of_it["measure"] == measure) & (of_it["rank"] == rank) & (of_it["value"] > 0)]
            cells.append(_cost_cell(found.iloc[0], measure) if len(found) else "")
        if any(cells[1:]):
            rows.append(tuple(cells))
    return Sheet(
        f"The dearest by {title}: who, how much, and which part of all",
        ("", *_MEASURES.values()),
        tuple(rows),
        frozenset({0}),
    )


def _cost_cell(row: "pd.Series[Any]", measure: str) -> str:
    value = float(row["value"])
    amount = spread_of(value) if measure.endswith("byte_seconds") else count(value)
    return f"{shown(row['name'])}: {amount} ({share(row['share'])})"


def storms(facts: Facts, overview: Overview) -> Section:
    """Show arrivals, and the bursts among them."""
    section = Section("storms", "Storms")
    rates = overview.clock.whole(facts.endings.groupby("bin")[["requests"]].sum().reset_index())
    rates = rates.assign(rate=rates["requests"] / (overview.clock.step_us / _SECOND))[["at_ms", "when", "rate"]]
    bands = _bands(facts.storms)
    sentence = (
        f"{count(facts.storm_count)} storms were found: bursts with far more arrivals than usual."
        if facts.storm_count > 1
        else "One storm was found: a burst with far more arrivals than usual."
        if facts.storm_count
        else "No storm was found (or nobody has looked for one: run the job storms)."
    )
    if facts.storm_count > len(facts.storms):
        sentence += f" Those with most requests are shown: {len(facts.storms)}, in the order of time."
    text = f"Requests a second over time, at most {rates['rate'].max():,.1f}. {sentence}"
    sheets = tuple(_storm_sheets(facts)) if len(facts.storms) else ()
    return Section(
        section.name, section.title, (sentence,), (charts.arrivals(rates, bands, overview.clock, text),), sheets=sheets
    )


def _bands(found: pd.DataFrame) -> pd.DataFrame:
    if not len(found):
        return pd.DataFrame()
    begin = found["begin"].astype("datetime64[ms]").astype("int64")
    return pd.DataFrame(
        {
            "begin_ms": begin,
            "end_ms": begin + (found["served_seconds"] * 1000).clip(lower=1).round().astype("int64"),
            "name": [f"storm {number}" for number in found["storm"]],
        }
    )


def _storm_sheets(facts: Facts) -> Iterator[Sheet]:
    headers = (
        "", "begin (UTC)", "arrivals", "all served", "requests", "peak /s", "refused", "longest wait",
        "most heap", "queue",
    )  # fmt: skip
    rows = tuple(
        (
            str(row["storm"]),
            moment(row["begin"]),
            duration(row["arrival_seconds"] * _SECOND),
            duration(row["served_seconds"] * _SECOND),
            *(count(row[name]) for name in ("requests", "peak_rate", "refused")),
            duration(row["max_memory_wait_us"]),
            size(row["max_heap_used_bytes"]),
            count(max(row["max_heap_queue_len"], row["max_direct_queue_len"])),
        )
        for _, row in facts.storms.iterrows()
    )
    yield Sheet(
        "Storms: how long requests arrived, until when all were served, how large", headers, rows, frozenset(range(10))
    )
    if len(facts.members):
        members = tuple(
            (
                str(row["storm"]),
                _DIMENSIONS.get(row["dimension"], "proxy"),
                shown(row["name"]),
                count(row["requests"]),
                count(row["refused"]),
            )
            for _, row in facts.members.iterrows()
        )
        names = ("storm", "by", "who", "requests", "refused")
        yield Sheet("Who came in each storm", names, members, frozenset({3, 4}))


def sharing(facts: Facts) -> Section:
    """Show what shared answers saved."""
    section = Section("sharing", "Sharing")
    if not len(facts.sharing):
        return _without(section, "Nobody has added up what sharing saved yet: run the job usage.")
    whole = facts.sharing[facts.sharing["namespace"].isna()].iloc[0]
    if not whole["questions_saved"]:
        sentence = "No two equal requests waited at the same time, so no answer was shared and nothing was saved."
        return Section(section.name, section.title, (sentence,))
    sentence = (
        f"{count(whole['coalesced'])} of {count(whole['requests'])} requests shared the answer of another:"
        f" {count(whole['questions_saved'])} questions were not asked, {size(whole['upstream_bytes_saved'])}"
        " not fetched from"
        f" brokers, and about {spread_of(whole['heap_byte_seconds_saved'])} of heap not held."
    )
    rows = tuple(
        (
            shown(row["namespace"]),
            *(count(row[name]) for name in ("requests", "coalesced", "questions_saved")),
            size(row["upstream_bytes_saved"]),
            spread_of(row["heap_byte_seconds_saved"]),
        )
        for _, row in facts.sharing[facts.sharing["namespace"].notna()].iterrows()
    )
    headers = ("namespace", "requests", "shared", "questions saved", "not fetched", "heap saved, at most")
    sheet = Sheet("What sharing saved, by namespace", headers, rows, frozenset(range(1, 6)))
    return Section(section.name, section.title, (sentence,), sheets=(sheet,))


def quality(facts: Facts, overview: Overview) -> Section:
    """Say how far the data can be trusted: what was set aside, lost, or imputed."""
    imputed = facts.whatif["imputed_share"].max() if len(facts.whatif) else None
    rows = [
        ("requests", count(overview.requests)),
        ("watch frames", count(overview.watch_frames)),
        ("proxies", count(overview.proxies)),
        ("starts of proxies", count(overview.starts)),
        ("events lost before they were written", count(overview.dropped)),
        ("requests whose size or times were imputed", share(imputed)),
    ]
    aside = facts.quarantine.iterrows()
    reasons = [(f"set aside: {words_of(row['reason'])}", count(row["events"])) for _, row in aside]
    sentences = [
        "Every event that was read is either in the tables or set aside with a reason; nothing is left out silently."
        if not reasons
        else "Some of what was read is not in the tables but in quarantine, by reason:"
        " look at the table `quarantine` for the texts."
    ]
    if overview.dropped:
        sentences.append(
            "Proxies lost events because their log could not keep up: totals here are too low by so many. Give"
            " the event log"
            " more memory or a faster disk (eventLogBufferMB)."
        )
    sheet = Sheet("What the figures rest on", ("what", "how many"), tuple(rows + reasons), frozenset({1}))
    return Section("quality", "Data quality", tuple(sentences), sheets=(sheet,))


def _without(section: Section, why: str) -> Section:
    return Section(section.name, section.title, missing=why)
