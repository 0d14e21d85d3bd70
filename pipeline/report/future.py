"""Sections about other limits: the grid, how far the model can be believed, and what to set.

Rule: pure functions from facts to sections. Advice is shown only if there is any: without calibration there is none.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pandas as pd

from pipeline.core.calibration import ALL, LATE_US, Judged, judge
from pipeline.report import charts_future
from pipeline.report.facts import Facts, Overview
from pipeline.report.parts import Fragment, Section, Sheet
from pipeline.report.units import about, count, duration, share, shown, size

__all__ = ["REFUSED", "advice", "calibration", "chosen", "times", "whatif"]

REFUSED: Final = (
    "timeout_heap", "timeout_heap_update", "timeout_direct", "timeout_other", "queue_full_heap", "queue_full_direct",
    "oversize",
)  # fmt: skip
# What one surface keeps fixed; the family with most scenarios is drawn.
_FAMILY: Final = [
    "heap_timeout_us", "direct_timeout_us", "heap_queue", "direct_queue", "request_timeout_us",
    "max_outstanding_per_broker", "coalescing", "fairness", "key_cap_percent",
]  # fmt: skip
_MOST_LOADS: Final = 4
_MOST_FLEETS: Final = 3
_MOST_LIMITS: Final = 7
_MOST_ROWS: Final = 40
_MOST_PROXIES: Final = 50
_MIB: Final = 2**20
_SECOND: Final = 1_000_000


def whatif(facts: Facts) -> Section:
    """Show what other limits would have done."""
    section = Section("whatif", "What if")
    if not len(facts.whatif):
        return Section(section.name, section.title, missing="Nothing was replayed yet: run the job whatif.")
    family = _largest_family(facts.whatif)
    grid = _grid(family)
    best = family.assign(refused=_refused(family)).sort_values(["load", "refused"]).groupby("load").first()
    sentences = [
        f"{count(len(facts.whatif))} replays of everything that was recorded"
        f" ({share(facts.whatif['imputed_share'].max())} of the requests with sizes or times of others).",
        *(
            f"At {load} x the load the best of these limits refuse {share(row['refused'] / row['requests'])} of"
            " the requests."
            for load, row in best.iterrows()
        ),
    ]
    text = " ".join(sentences)
    drawn = [charts_future.surface(_labelled(grid, measure), measure, text) for measure in ("refused", "wait")]
    sheets = (_whatif_sheet(family, len(facts.whatif)),)
    return Section(section.name, section.title, tuple(sentences), tuple(drawn), sheets=sheets)


def _refused(frame: pd.DataFrame) -> "pd.Series[Any]":
    return frame[list(REFUSED)].sum(axis=1)


def _largest_family(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep those scenarios that differ in nothing but limits, load and fleet."""
    sizes = frame.groupby(_FAMILY)["scenario"].transform("size")
    first = frame[_FAMILY].iloc[int(sizes.to_numpy().argmax())]
    return frame[(frame[_FAMILY] == first).all(axis=1)]


def _grid(family: pd.DataFrame) -> pd.DataFrame:
    for name, most in (
        ("load", _MOST_LOADS),
        ("fleet", _MOST_FLEETS),
        ("heap_limit_bytes", _MOST_LIMITS),
        ("direct_limit_bytes", _MOST_LIMITS),
    ):
        family = family[family[name].isin(_spaced(sorted(family[name].unique()), most))]
    return pd.DataFrame(
        {
            "heap_mib": (family["heap_limit_bytes"] / _MIB).round(1),
            "direct_mib": (family["direct_limit_bytes"] / _MIB).round(1),
            "load": family["load"],
            "fleet": family["fleet"],
            "refused": _refused(family) / family["requests"].clip(lower=1),
            "wait": family["wait_p99_us"] / _SECOND,
        }
    )


def _spaced(values: list[Any], most: int) -> list[Any]:
    """Keep the first, the last and some between."""
    if len(values) <= most:
        return values
    return [values[round(number * (len(values) - 1) / (most - 1))] for number in range(most)]


def _labelled(grid: pd.DataFrame, measure: str) -> pd.DataFrame:
    value = grid[measure].astype(float).fillna(0)
    label = value.map(_percent) if measure == "refused" else (value * _SECOND).map(duration)
    return grid.assign(value=value, label=label)[["heap_mib", "direct_mib", "load", "fleet", "value", "label"]]


def _percent(part: float) -> str:
    return "0" if part == 0 else "< 1 %" if part < 0.01 else f"{100 * part:.0f} %"


def _whatif_sheet(family: pd.DataFrame, of_all: int) -> Sheet:
    ordered = family.assign(refused=_refused(family)).sort_values(
        ["load", "fleet", "refused", "heap_limit_bytes", "direct_limit_bytes"]
    )
    rows = tuple(
        (
            f"{row['load']} x",
            f"{row['fleet']} x",
            *(_limit(row[f"{kind}_limit_bytes"]) for kind in ("heap", "direct")),
            share(row["refused"] / max(row["requests"], 1)),
            duration(row["wait_p99_us"]),
            *(size(row[f"peak_{kind}_bytes"]) for kind in ("heap", "direct")),
        )
        for _, row in ordered.head(_MOST_ROWS).iterrows()
    )
    headers = ("load", "proxies", "heap", "direct", "refused", "p99, all waits", "peak heap", "peak direct")
    caption = f"{len(rows)} of {count(of_all)} scenarios; all are in the table `whatif`"
    return Sheet(caption, headers, rows, frozenset(range(8)))


def _limit(bytes_: float) -> str:
    return size(bytes_) if bytes_ else "none"


def calibration(facts: Facts) -> Section:
    """Show how well the replay reproduces what was recorded."""
    section = Section("calibration", "Calibration")
    frame = facts.calibration
    if not len(frame):
        why = "The replay was not held against the recorded outcomes yet: run the job whatif."
        return Section(section.name, section.title, missing=why)
    judged = _judged(facts)
    whole = judged[ALL]
    sentence = (
        f"Replayed under the limits that were in force, outcomes differ by at most {share(whole.outcome_error)} of the"
        " requests from what was recorded, and the p99 of all waits of those answered"
        f" ({duration(whole.recorded_us)} recorded, {duration(whole.simulated_us)} simulated)"
        f" by {share(whole.wait_error)} ({whole.waits}). The error of all proxies together, by which advice is given or"
        f" not, is {share(whole.error)}."
    )
    honesty = (
        "The replay is an open loop: clients come when they came, retries are in the record as arrivals, and"
        " brokers take as"
        " long as they took, however much is asked of them."
    )
    drawn = charts_future.calibration(_sides(whole.row), sentence)
    sheet = _calibration_sheet(list(judged.values()))
    sentences = (sentence, *_refusals(facts), *_lateness(whole.row), honesty)
    return Section(section.name, section.title, sentences, (drawn,), sheets=(sheet,))


def _lateness(row: Mapping[str, Any]) -> Iterator[str]:
    """Say how late the machine was, if that is more than a turn of its event loop."""
    if row["late_p99_us"] >= LATE_US:
        yield (
            f"The machine was late: by {duration(row['late_p50_us'])} in the median, and by"
            f" {duration(row['late_p99_us'])} or more in 1 % of the answered requests. No limit changes that, and it is"
            " no error of the replay."
        )


def _refusals(facts: Facts) -> Iterator[str]:
    """Say by how many refusals the replay is off, if that is more than a few."""
    whole = _judged(facts).get(ALL) if len(facts.calibration) else None
    if whole is not None and whole.refusals:
        yield f"{whole.refusals}."


def _judged(facts: Facts) -> dict[str, Judged]:
    rows = facts.calibration.to_dict("records")
    return judge(({str(name): value for name, value in row.items()} for row in rows), facts.promised_us)


def _sides(row: Mapping[str, Any]) -> pd.DataFrame:
    requests = max(row["requests"], 1)
    waits = [(name, f"{name}_us", _SECOND, "waits") for name in ("p50", "p95", "p99", "max")]
    outcomes = [
        (title, name, requests, "outcomes")
        for title, name in (("answered", "ok"), ("refused", "refused"), ("cancelled", "cancelled"))
    ]
    return pd.DataFrame(
        [
            {"measure": title, "value": float(row[f"{side}_{name}"]) / by, "side": side, "group": group}
            for title, name, by, group in (*waits, *outcomes)
            for side in ("recorded", "simulated")
            if pd.notna(row[f"{side}_{name}"])
        ]
    )


def _calibration_sheet(judged: Sequence[Judged]) -> Sheet:
    def pair(row: Mapping[str, Any], name: str) -> str:
        write = duration if name.endswith("_us") else count
        return f"{write(row[f'recorded_{name}'])} / {write(row[f'simulated_{name}'])}"

    names = ("ok", "refused", "cancelled", "p50_us", "p95_us", "p99_us", "max_us")
    rows = tuple(
        (
            shown(one.row["proxy_id"]) if one.row["proxy_id"] else "all",
            *(pair(one.row, name) for name in names),
            share(one.error),
            share(one.row["imputed_share"]),
        )
        for one in judged[:_MOST_PROXIES]
    )
    headers = ("proxy", "answered", "refused", "cancelled", "p50", "p95", "p99", "longest", "error", "imputed")
    return Sheet("Recorded / simulated", headers, rows, frozenset(range(1, 10)))


def chosen(facts: Facts) -> "pd.Series[Any] | None":
    """Give the row of the table `advice` that is the advice, if there is one."""
    if not len(facts.advice):
        return None
    rows = facts.advice[facts.advice["chosen"]]
    return rows.iloc[0] if len(rows) else None


def advice(facts: Facts, overview: Overview) -> Section:
    """Show what to set, and the trade-off behind it."""
    section = Section("advice", "Advice")
    if not len(facts.advice):
        why = f"No advice was given: {facts.no_advice.removeprefix('no advice: ') or _no_advice(facts)}."
        return Section(section.name, section.title, missing=why)
    row = chosen(facts)
    if row is None:
        sentences = ["No limits of the grid hold the target. Try larger limits, or more proxies (--heap-mb, --fleet)."]
    else:
        sentences = [
            f"At {row['load']} x the recorded load: {size(row['heap_limit_bytes'])} of heap and"
            f" {size(row['direct_limit_bytes'])} of direct memory for each proxy, {times(row['fleet'])}"
            f" (recorded: {_limit(overview.heap_limit)} and {_limit(overview.direct_limit)}).",
            f"The replay then refuses {share(row['refused'] / max(row['requests'], 1))} of the requests, and 99"
            " % of the"
            f" answered ones wait at most {about(row['wait_p99_us'])}, all waits together.",
            *_refusals(facts),
            *_bounds(row),
        ]
    # A file without a chosen row is not of the run that wrote the table.
    fragments = () if facts.fragment is None or row is None else (Fragment("Put this into proxy.conf", facts.fragment),)
    drawn = charts_future.trade_off(_curve(facts.advice), " ".join(sentences))
    return Section(section.name, section.title, tuple(sentences), (drawn,), fragments, (_advice_sheet(facts.advice),))


def _bounds(row: "pd.Series[Any]") -> Iterator[str]:
    """Say what of the advice was not replayed, and what nobody has seen yet."""
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
    return (
        "the job advise has not run, or does not trust the calibration"
        f" (error {share(_judged(facts)[ALL].error)},"
        f" {share(facts.calibration['imputed_share'].max())} imputed)"
    )


def times(fleet: int) -> str:
    """Write a size of the fleet."""
    return "as many proxies" if fleet == 1 else f"{fleet} times as many proxies"


def _curve(frame: pd.DataFrame) -> pd.DataFrame:
    # Drawn in this order, so that nothing lies on the advice.
    frame = frame.sort_values(["chosen", "holds"])
    state = frame["holds"].map({True: "holds the target", False: "misses the target"})
    return pd.DataFrame(
        {
            "memory_mib": frame["memory_bytes"] / _MIB,
            "refused_share": frame["refused"] / frame["requests"].clip(lower=1),
            "wait_seconds": frame["wait_p99_us"].fillna(0) / _SECOND,
            "fleet": frame["fleet"],
            "state": state.where(~frame["chosen"], "advice"),
            "limits": [
                f"heap {_limit(heap)}, direct {_limit(direct)}"
                for heap, direct in zip(frame["heap_limit_bytes"], frame["direct_limit_bytes"], strict=True)
            ],
        }
    )


def _advice_sheet(frame: pd.DataFrame) -> Sheet:
    kept = frame[frame["chosen"] | frame["best"]].sort_values(["fleet", "memory_bytes"]).head(_MOST_ROWS)
    rows = tuple(
        (
            f"{row['fleet']} x",
            *(_limit(row[f"{kind}_limit_bytes"]) for kind in ("heap", "direct")),
            _limit(row["memory_bytes"]),
            share(row["refused"] / max(row["requests"], 1)),
            duration(row["wait_p99_us"]),
            "yes" if row["holds"] else "no",
            "this one" if row["chosen"] else "",
        )
        for _, row in kept.iterrows()
    )
    headers = ("proxies", "heap", "direct", "all memory", "refused", "p99, all waits", "holds the target", "advice")
    return Sheet("The best points: nothing cheaper holds with as many proxies", headers, rows, frozenset(range(6)))
