"""Sections about what happened: memory, waits, refusals, costs, storms, sharing, and how good the data is.

Rule: pure functions from facts to sections; a section without data says which job would bring it.
"""

from collections.abc import Iterator
from typing import Final

import pandas as pd

from pipeline.report import charts
from pipeline.report.facts import COST_MEASURES, Facts, Overview
from pipeline.report.parts import Chart, Missing, Part, Row, Sheet, cell, rows_of, section, sheet
from pipeline.report.units import about, count, duration, limit, moment, share, shown, size, spread_of, words_of

_DIMENSIONS: Final = ("tenant", "namespace", "principal", "client_version")
_SHARES: Final = {"heap_share": "heap", "direct_share": "direct"}
_QUANTILES: Final = {"p50_us": "p50", "p95_us": "p95", "p99_us": "p99"}
_SECOND: Final = 1_000_000


@section("demand", "Demand and limits")
def demand(facts: Facts, overview: Overview) -> Iterator[Part]:
    """Show memory over time against its limits."""
    whose = "of one proxy" if overview.limits_differ else "for each proxy"
    yield (
        f"The limits in force at the end were {limit(overview.heap_limit)} of heap and"
        f" {limit(overview.direct_limit)} of direct memory {whose}."
    )
    if overview.limits_differ:
        yield "Other proxies had other limits; these are of the one that was heard last."
    for kind in ("heap", "direct"):
        frame = facts.memory[facts.memory["kind"] == kind]
        most, waited = frame["held_mib"].max(), frame["waiting_mib"].max()
        text = (
            f"{kind.capitalize()} memory over time: at most {most:,.1f} MiB in use and {waited:,.1f} MiB waited for,"
            f" mean of {duration(overview.clock.step_us)}."
        )
        yield text
        yield charts.memory(frame, overview.clock, kind, text)
    full = _long(facts.fullness.astype(float), overview, _SHARES, "kind", "share")
    if len(full):
        highest = full.groupby("kind")["share"].max()
        text = "Highest use on arrival: " + ", ".join(f"{kind} {share(most)}" for kind, most in highest.items()) + "."
        yield charts.fullness(full, overview.clock, text)
    memory = facts.memory.reset_index(drop=True)
    wanted = memory["held_mib"] + memory["waiting_mib"]
    yield sheet(
        "The busiest interval of each kind of memory",
        rows_of(memory.loc[wanted.groupby(memory["kind"], sort=False).idxmax()]),
        {
            "memory": cell(str, "kind"),
            "busiest interval (UTC)": cell(str, "when"),
            "in use": cell("{:,.1f} MiB".format, "held_mib"),
            "waited for": cell("{:,.1f} MiB".format, "waiting_mib"),
            "limit of all proxies": lambda row: f"{row['limit_mib']:,.1f} MiB" if row["limit_mib"] else "none",
        },
        words=("memory", "busiest interval (UTC)"),
    )


def _long(frame: pd.DataFrame, overview: Overview, names: dict[str, str], name: str, value: str) -> pd.DataFrame:
    """Return a row for each bin and column that has a value.

    Numbered by the column `run`, which bins without a value divide: a line must not go through them.
    """
    long = overview.clock.whole(frame, None).melt(["bin", "at_ms", "when"], list(names), name, value)
    known = long.dropna(subset=[value]).replace({name: names})
    return known.assign(run=(known["bin"].diff() != 1).cumsum()).drop(columns="bin")


@section("waits", "Waits")
def waits(facts: Facts, overview: Overview) -> Iterator[Part]:
    """Show how long answered requests waited for memory."""
    row = facts.whole_waits
    if row is None:
        yield Missing("No request was answered, so there are no waits to show.")
        return
    sentence = (
        f"Half of the answered requests waited at most {about(row['p50_us'])} for memory, 99 % at most"
        f" {about(row['p99_us'])}; the longest wait was {about(row['max_us'])} (from buckets: within 9 %)."
    )
    yield sentence
    seconds = facts.waits[facts.waits["bin"].notna()].astype({"bin": int})
    seconds[list(_QUANTILES)] /= _SECOND
    yield charts.waits(_long(seconds, overview, _QUANTILES, "quantile", "seconds"), overview.clock, sentence)
    cells = {title: cell(duration, name) for name, title in (_QUANTILES | {"max_us": "longest"}).items()}
    yield sheet("Waits of answered requests for memory, whole time", [row], {"answered": cell(count, "count")} | cells)


@section("refusals", "Refusals")
def refusals(facts: Facts, overview: Overview) -> Iterator[Part]:
    """Show what was not answered, and why."""
    bad = facts.endings[facts.endings["reason"] != "ok"]
    if not len(bad):
        yield Missing(f"Every one of the {count(overview.requests)} requests was answered.")
        return
    totals = bad.groupby("reason")["requests"].sum().sort_values(ascending=False)
    sentence = (
        f"{count(overview.refused)} of {count(overview.requests)} requests were not answered; most often: "
        + ", ".join(f"{words_of(name)} ({count(number)})" for name, number in totals.head(3).items())
        + "."
    )
    yield sentence
    bins = overview.clock.whole(pd.DataFrame({"bin": range(overview.clock.bins)}))
    frame = bins.merge(bad, on="bin")
    step_ms = max(overview.clock.step_us // 1000, 1)
    frame = frame.assign(end_ms=frame["at_ms"] + step_ms, reason=frame["reason"].map(words_of))
    yield charts.refusals(frame, overview.clock, sentence)
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


@section("costs", "Who costs how much")
def costs(facts: Facts) -> Iterator[Part]:
    """Show who cost most."""
    if not len(facts.top_costs):
        yield Missing("Nobody has added up costs yet: run the job usage.")
        return
    yield (
        "Costs are byte-seconds: how much memory was booked, times how long. A large list that leaves at once is cheap,"
        " a small one that a slow reader keeps is not. A shared answer costs once, whoever was the last of its group to"
        " end."
    )
    for dimension in _DIMENSIONS:
        of_it = facts.top_costs[facts.top_costs["dimension"] == dimension]
        if not len(of_it):
            continue
        booked = of_it[of_it["value"] > 0]
        yield _cost_sheet(booked, words_of(dimension))
        heap = booked[booked["measure"] == "heap_byte_seconds"]
        if len(heap) > 1:
            yield _cost_bars(heap, words_of(dimension))


def _cost_bars(heap: pd.DataFrame, title: str) -> Chart:
    first = heap.iloc[0]
    frame = pd.DataFrame({"who": heap["name"].map(shown), "value": heap["value"] / 2**20})
    text = f"Heap byte-seconds by {title}; {shown(first['name'])} has most, {share(first['share'])} of all."
    return charts.costs(frame, title, text)


def _cost_sheet(booked: pd.DataFrame, title: str) -> Sheet:
    cells = {(row["rank"], row["measure"]): _cost_cell(row) for row in rows_of(booked)}
    ranks = sorted({rank for rank, _ in cells})
    rows = tuple((str(rank), *(cells.get((rank, measure), "") for measure in COST_MEASURES)) for rank in ranks)
    caption = f"The dearest by {title}: who, how much, and which part of all"
    return Sheet(caption, ("", *COST_MEASURES.values()), rows, frozenset({0}))


def _cost_cell(row: Row) -> str:
    write = spread_of if row["measure"].endswith("byte_seconds") else count
    return f"{shown(row['name'])}: {write(float(row['value']))} ({share(row['share'])})"


@section("storms", "Storms")
def storms(facts: Facts, overview: Overview) -> Iterator[Part]:
    """Show arrivals, and the bursts among them."""
    rates = overview.clock.whole(facts.endings.groupby("bin")[["requests"]].sum().reset_index())
    rates = rates.assign(rate=rates["requests"] / (overview.clock.step_us / _SECOND))[["at_ms", "when", "rate"]]
    sentence = (
        f"{count(facts.storm_count)} storms were found: bursts with far more arrivals than usual."
        if facts.storm_count > 1
        else "One storm was found: a burst with far more arrivals than usual."
        if facts.storm_count
        else "No storm was found (or nobody has looked for one: run the job storms)."
    )
    if facts.storm_count > len(facts.storms):
        sentence += f" Those with most requests are shown: {len(facts.storms)}, in the order of time."
    yield sentence
    text = f"Requests a second over time, at most {rates['rate'].max():,.1f}. {sentence}"
    yield charts.arrivals(rates, _bands(facts.storms), overview.clock, text)
    if not len(facts.storms):
        return
    yield sheet(
        "Storms: how long requests arrived, until when all were served, how large",
        rows_of(facts.storms),
        {
            "": cell(str, "storm"),
            "begin (UTC)": cell(moment, "begin"),
            "arrivals": lambda row: duration(row["arrival_seconds"] * _SECOND),
            "all served": lambda row: duration(row["served_seconds"] * _SECOND),
            "requests": cell(count, "requests"),
            "peak /s": cell(count, "peak_rate"),
            "refused": cell(count, "refused"),
            "longest wait": cell(duration, "max_memory_wait_us"),
            "most heap": cell(size, "max_heap_used_bytes"),
            "queue": lambda row: count(max(row["max_heap_queue_len"], row["max_direct_queue_len"])),
        },
    )
    if len(facts.members):
        yield sheet(
            "Who came in each storm",
            rows_of(facts.members),
            {
                "storm": cell(str, "storm"),
                "by": lambda row: words_of(row["dimension"]).removesuffix(" id"),
                "who": cell(shown, "name"),
                "requests": cell(count, "requests"),
                "refused": cell(count, "refused"),
            },
            words=("storm", "by", "who"),
        )


def _bands(found: pd.DataFrame) -> pd.DataFrame:
    if not len(found):
        return pd.DataFrame()
    begin = found["begin"].astype("datetime64[ms]").astype("int64")
    lasted = (found["served_seconds"] * 1000).clip(lower=1).round().astype("int64")
    names = [f"storm {number}" for number in found["storm"]]
    return pd.DataFrame({"begin_ms": begin, "end_ms": begin + lasted, "name": names})


@section("sharing", "Sharing")
def sharing(facts: Facts) -> Iterator[Part]:
    """Show what shared answers saved."""
    if not len(facts.sharing):
        yield Missing("Nobody has added up what sharing saved yet: run the job usage.")
        return
    whole = facts.sharing[facts.sharing["namespace"].isna()].iloc[0]
    if not whole["questions_saved"]:
        yield "No two equal requests waited at the same time, so no answer was shared and nothing was saved."
        return
    yield (
        f"{count(whole['coalesced'])} of {count(whole['requests'])} requests shared the answer of another:"
        f" {count(whole['questions_saved'])} questions were not asked, {size(whole['upstream_bytes_saved'])} not"
        f" fetched from brokers, and about {spread_of(whole['heap_byte_seconds_saved'])} of heap not held."
    )
    yield sheet(
        "What sharing saved, by namespace",
        rows_of(facts.sharing[facts.sharing["namespace"].notna()]),
        {
            "namespace": cell(shown, "namespace"),
            "requests": cell(count, "requests"),
            "shared": cell(count, "coalesced"),
            "questions saved": cell(count, "questions_saved"),
            "not fetched": cell(size, "upstream_bytes_saved"),
            "heap saved, at most": cell(spread_of, "heap_byte_seconds_saved"),
        },
        words=("namespace",),
    )


@section("quality", "Data quality")
def quality(facts: Facts, overview: Overview) -> Iterator[Part]:
    """Yield sentences on how far the data can be trusted, and a table: what was set aside, lost, or imputed."""
    imputed = facts.whatif["imputed_share"].max() if len(facts.whatif) else None
    figures = {
        "requests": count(overview.requests),
        "watch frames": count(overview.watch_frames),
        "proxies": count(overview.proxies),
        "starts of proxies": count(overview.starts),
        "events lost before they were written": count(overview.dropped),
        "requests whose size or times were imputed": share(imputed),
    }
    aside = {f"set aside: {words_of(row['reason'])}": count(row["events"]) for row in rows_of(facts.quarantine)}
    yield (
        "Some of what was read is not in the tables but in quarantine, by reason: look at the table `quarantine` for"
        " the texts."
        if aside
        else "Every event that was read is either in the tables or set aside with a reason; nothing is left out"
        " silently."
    )
    if overview.dropped:
        yield (
            "Proxies lost events because their log could not keep up: totals here are too low by so many. Give the"
            " event log more memory or a faster disk (eventLogBufferMB)."
        )
    yield Sheet("What the figures rest on", ("what", "how many"), tuple((figures | aside).items()), frozenset({1}))
