"""Sections about other limits: the grid, how far the model can be believed, and what to set.

Rule: pure functions from facts to sections. Advice is shown only if there is any: without calibration there is none.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pandas as pd

from pipeline.core.calibration import ALL, LATE_US, Judged, judge
from pipeline.core.tables.whatif import LIMIT_COLUMNS, OUTCOME_COLUMNS
from pipeline.report import charts
from pipeline.report.facts import Facts, Overview
from pipeline.report.parts import Fragment, Missing, Part, Row, cell, pair, rows_of, section, sheet
from pipeline.report.units import about, count, duration, limit, share, shown, size

_REFUSED: Final = [column.name for column in OUTCOME_COLUMNS if column.name not in ("ok", "cancelled", "failed")]
_LIMITS: Final = ["heap_limit_bytes", "direct_limit_bytes"]
# Limits that one surface keeps fixed; the family with most scenarios is drawn.
_FAMILY: Final = [column.name for column in LIMIT_COLUMNS if column.name not in _LIMITS]
# At most so many values of each axis of the surfaces.
_MOST_VALUES: Final = {"load": 4, "fleet": 3, "heap_limit_bytes": 7, "direct_limit_bytes": 7}
_MOST_ROWS: Final = 40
_MOST_PROXIES: Final = 50
_MIB: Final = 2**20
_SECOND: Final = 1_000_000
_limit: Final = partial(limit, without="none")


@section("whatif", "What if")
def whatif(facts: Facts) -> Iterator[Part]:
    """Show what other limits would have done."""
    if not len(facts.whatif):
        yield Missing("Nothing was replayed yet: run the job whatif.")
        return
    family = _largest_family(facts.whatif)
    family = family.assign(refused=family[_REFUSED].sum(axis=1))
    best = family.sort_values(["load", "refused"]).groupby("load").first()
    sentences = [
        f"{count(len(facts.whatif))} replays of everything that was recorded"
        f" ({share(facts.whatif['imputed_share'].max())} of the requests with sizes or times of others).",
        *(
            f"At {load} x the load the best of these limits refuse {share(row['refused'] / row['requests'])} of the"
            " requests."
            for load, row in best.iterrows()
        ),
    ]
    yield from sentences
    for measure in ("refused", "wait"):
        yield charts.surface(_surface(family, measure), measure, " ".join(sentences))
    shown_first = family.sort_values(["load", "fleet", "refused", *_LIMITS]).head(_MOST_ROWS)
    yield sheet(
        f"{len(shown_first)} of {count(len(facts.whatif))} scenarios; all are in the table `whatif`",
        rows_of(shown_first),
        {
            "load": cell("{} x".format, "load"),
            "proxies": cell("{} x".format, "fleet"),
            "heap": cell(_limit, "heap_limit_bytes"),
            "direct": cell(_limit, "direct_limit_bytes"),
            "refused": _refused_share,
            "p99, all waits": cell(duration, "wait_p99_us"),
            "peak heap": cell(size, "peak_heap_bytes"),
            "peak direct": cell(size, "peak_direct_bytes"),
        },
    )


def _largest_family(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep those scenarios that differ in nothing but limits, load and fleet."""
    sizes = frame.groupby(_FAMILY)["scenario"].transform("size")
    first = frame[_FAMILY].iloc[int(sizes.to_numpy().argmax())]
    return frame[(frame[_FAMILY] == first).all(axis=1)]


def _surface(family: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return what is drawn of one measure: heap_mib, direct_mib, load, fleet, value, label."""
    for name, most in _MOST_VALUES.items():
        family = family[family[name].isin(_spaced(sorted(family[name].unique()), most))]
    if measure == "refused":
        value = family["refused"] / family["requests"].clip(lower=1)
        label = value.map(lambda part: "0" if part == 0 else "< 1 %" if part < 0.01 else f"{100 * part:.0f} %")
    else:
        value = (family["wait_p99_us"] / _SECOND).astype(float).fillna(0)
        label = (value * _SECOND).map(duration)
    heap, direct = ((family[name] / _MIB).round(1) for name in _LIMITS)
    whose = {"load": family["load"], "fleet": family["fleet"]}
    return pd.DataFrame({"heap_mib": heap, "direct_mib": direct} | whose | {"value": value, "label": label})


def _spaced(values: list[Any], most: int) -> list[Any]:
    """Keep the first, the last and some between."""
    if len(values) <= most:
        return values
    return [values[round(number * (len(values) - 1) / (most - 1))] for number in range(most)]


def _refused_share(row: Row) -> str:
    return share(row["refused"] / max(row["requests"], 1))


@section("calibration", "Calibration")
def calibration(facts: Facts) -> Iterator[Part]:
    """Show how well the replay reproduces what was recorded."""
    judged = _judged(facts)
    if not judged:
        yield Missing("The replay was not held against the recorded outcomes yet: run the job whatif.")
        return
    whole = judged[ALL]
    sentence = (
        f"Replayed under the limits that were in force, outcomes differ by at most {share(whole.outcome_error)} of the"
        " requests from what was recorded, and the p99 of all waits of those answered"
        f" ({duration(whole.recorded_us)} recorded, {duration(whole.simulated_us)} simulated)"
        f" by {share(whole.wait_error)} ({whole.waits}). The error of all proxies together, by which advice is given or"
        f" not, is {share(whole.error)}."
    )
    yield sentence
    yield from _refusals(facts)
    if whole.row["late_p99_us"] >= LATE_US:
        yield (
            f"The machine was late: by {duration(whole.row['late_p50_us'])} in the median, and by"
            f" {duration(whole.row['late_p99_us'])} or more in 1 % of the answered requests. No limit changes that, and"
            " it is no error of the replay."
        )
    yield (
        "The replay is an open loop: clients come when they came, retries are in the record as arrivals, and brokers"
        " take as long as they took, however much is asked of them."
    )
    yield charts.calibration(_sides(whole.row), sentence)
    yield sheet(
        "Recorded / simulated",
        [{**one.row, "error": one.error} for one in list(judged.values())[:_MOST_PROXIES]],
        {
            "proxy": lambda row: shown(row["proxy_id"]) if row["proxy_id"] else "all",
            "answered": pair(count, "ok"),
            "refused": pair(count, "refused"),
            "cancelled": pair(count, "cancelled"),
            "p50": pair(duration, "p50_us"),
            "p95": pair(duration, "p95_us"),
            "p99": pair(duration, "p99_us"),
            "longest": pair(duration, "max_us"),
            "error": cell(share, "error"),
            "imputed": cell(share, "imputed_share"),
        },
        words=("proxy",),
    )


def _refusals(facts: Facts) -> Iterator[str]:
    """Yield a sentence on how many refusals the replay is off by, if these are more than a few."""
    whole = _judged(facts).get(ALL)
    if whole is not None and whole.refusals:
        yield f"{whole.refusals}."


def _judged(facts: Facts) -> dict[str, Judged]:
    return judge(rows_of(facts.calibration), facts.promised_us)


def _sides(row: Row) -> pd.DataFrame:
    waits = [(name, f"{name}_us", _SECOND, "waits") for name in ("p50", "p95", "p99", "max")]
    endings = (("answered", "ok"), ("refused", "refused"), ("cancelled", "cancelled"))
    outcomes = [(title, name, max(row["requests"], 1), "outcomes") for title, name in endings]
    return pd.DataFrame(
        [
            {"measure": title, "value": float(row[f"{side}_{name}"]) / by, "side": side, "group": group}
            for title, name, by, group in (*waits, *outcomes)
            for side in ("recorded", "simulated")
            if pd.notna(row[f"{side}_{name}"])
        ]
    )


def chosen(facts: Facts) -> Row | None:
    """Return the row of the table `advice` that is the advice, if there is one."""
    return next((row for row in rows_of(facts.advice) if row["chosen"]), None)


@section("advice", "Advice")
def advice(facts: Facts, overview: Overview) -> Iterator[Part]:
    """Show what to set, and the trade-off behind it."""
    if not len(facts.advice):
        yield Missing(f"No advice was given: {facts.no_advice.removeprefix('no advice: ') or _no_advice(facts)}.")
        return
    row = chosen(facts)
    if row is None:
        sentences = ["No limits of the grid hold the target. Try larger limits, or more proxies (--heap-mb, --fleet)."]
    else:
        sentences = [
            f"At {row['load']} x the recorded load: {size(row['heap_limit_bytes'])} of heap and"
            f" {size(row['direct_limit_bytes'])} of direct memory for each proxy, {times(row['fleet'])}"
            f" (recorded: {_limit(overview.heap_limit)} and {_limit(overview.direct_limit)}).",
            f"The replay then refuses {_refused_share(row)} of the requests, and 99 % of the answered ones wait at most"
            f" {about(row['wait_p99_us'])}, all waits together.",
            *_refusals(facts),
            *_bounds(row),
        ]
        # A file without a chosen row is not of the run that wrote the table.
        if facts.fragment is not None:
            yield Fragment("Put this into proxy.conf", facts.fragment)
    yield from sentences
    yield charts.trade_off(_curve(facts.advice), " ".join(sentences))
    kept = facts.advice[facts.advice["chosen"] | facts.advice["best"]].sort_values(["fleet", "memory_bytes"])
    yield sheet(
        "The best points: nothing cheaper holds with as many proxies",
        rows_of(kept.head(_MOST_ROWS)),
        {
            "proxies": cell("{} x".format, "fleet"),
            "heap": cell(_limit, "heap_limit_bytes"),
            "direct": cell(_limit, "direct_limit_bytes"),
            "all memory": cell(_limit, "memory_bytes"),
            "refused": _refused_share,
            "p99, all waits": cell(duration, "wait_p99_us"),
            "holds the target": lambda row: "yes" if row["holds"] else "no",
            "advice": lambda row: "this one" if row["chosen"] else "",
        },
        words=("holds the target", "advice"),
    )


def _bounds(row: Row) -> Iterator[str]:
    """Yield the parts of the advice that were not replayed, and those that nobody has seen yet."""
    if row["watch_direct_bytes"]:
        yield (
            f"{size(row['watch_direct_bytes'])} of the direct memory of each proxy are for watchers: the most that"
            " their frames held at one time, times the load, shared by the fleet."
        )
    if row["extrapolated"]:
        yield (
            f"Extrapolated, beyond half to twice of what was recorded: {row['extrapolated'].replace('_', ' ')}."
            " Nobody has seen the proxy there; the lines of proxy.conf name the risk of each."
        )


def _no_advice(facts: Facts) -> str:
    if not len(facts.calibration):
        return "the job advise has not run"
    error, imputed = share(_judged(facts)[ALL].error), share(facts.calibration["imputed_share"].max())
    return f"the job advise has not run, or does not trust the calibration (error {error}, {imputed} imputed)"


def times(fleet: int) -> str:
    """Write a size of the fleet."""
    return "as many proxies" if fleet == 1 else f"{fleet} times as many proxies"


def _curve(frame: pd.DataFrame) -> pd.DataFrame:
    # Drawn in this order, so that nothing lies on the advice.
    frame = frame.sort_values(["chosen", "holds"])
    state = frame["holds"].map({True: "holds the target", False: "misses the target"})
    heap, direct = (frame[name].map(_limit) for name in _LIMITS)
    return pd.DataFrame(
        {
            "memory_mib": frame["memory_bytes"] / _MIB,
            "refused_share": frame["refused"] / frame["requests"].clip(lower=1),
            "wait_seconds": frame["wait_p99_us"].fillna(0) / _SECOND,
            "fleet": frame["fleet"],
            "state": state.where(~frame["chosen"], "advice"),
            "limits": "heap " + heap + ", direct " + direct,
        }
    )
