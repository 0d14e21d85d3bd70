"""The section on what to set: the advice, what memory buys, and how far the replay behind it can be believed. Pure.

Rule: advice is shown only if there is any: without a calibration that can be trusted there is none.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pandas as pd

from pipeline.core.calibration import ALL, LATE_US, Judged, judge
from pipeline.report import charts
from pipeline.report.facts import Advised, Facts
from pipeline.report.parts import Fragment, Missing, Part, Row, cell, section, sheet
from pipeline.report.units import about, count, duration, limit, share, shown, size, words_of

_MOST_ROWS: Final = 12
_MOST_PROXIES: Final = 50
_MIB: Final = 2**20
_SECOND: Final = 1_000_000


@section("advice", "Advice")
def advice(facts: Facts) -> Iterator[Part]:
    """Show what to set, what is behind it, and how well the replay reproduces what was recorded."""
    advised, row = facts.advised, facts.advised.chosen
    whole = judge(advised.calibration, advised.target_us)
    if not advised.points:
        yield Missing(f"No advice was given: {advised.none_since.removeprefix('no advice: ') or _no_advice(whole)}.")
    elif row is None:
        yield "No limits of the grid hold the target. Try larger limits, or more proxies (--heap-mb, --fleet)."
    else:
        heap, direct = limits_of(row)
        recorded = limit(facts.overview.heap_limit), limit(facts.overview.direct_limit)
        yield (
            f"For {load_of(row)}: {heap} of heap and {direct} of direct memory for each proxy, {fleet_of(row)}"
            f" (recorded: {recorded[0]} and {recorded[1]}). The replay then refuses {_refused(row)} of the requests,"
            f" and 99 % of the answered ones wait at most {about(row['wait_p99_us'])}, all waits together."
        )
        yield from _bounds(row)
        if advised.fragment is not None:
            yield Fragment("Put this into proxy.conf", advised.fragment)
    if advised.points:
        yield from _tried(advised)
    if ALL in whole:
        yield from _trust(whole)


def limits_of(row: Row) -> tuple[str, str]:
    """Write the heap and the direct memory of limits."""
    return limit(row["heap_limit_bytes"]), limit(row["direct_limit_bytes"])


def load_of(row: Row) -> str:
    """Write the load of a target."""
    return "the recorded load" if row["load"] == 1 else f"{row['load']} times the recorded load"


def fleet_of(row: Row) -> str:
    """Write a size of the fleet."""
    return "as many proxies" if row["fleet"] == 1 else f"{row['fleet']} times as many proxies"


def _refused(row: Row) -> str:
    return share(row["refused"] / max(row["requests"], 1))


def _bounds(row: Row) -> Iterator[str]:
    """Yield the parts of the advice that were not replayed, and those that nobody has seen yet."""
    if row["watch_direct_bytes"]:
        yield (
            f"{size(row['watch_direct_bytes'])} of the direct memory of each proxy are for watchers: the most that"
            " their frames held at one time, times the load, shared by the fleet."
        )
    if row["extrapolated"]:
        values = words_of(row["extrapolated"].replace("_limit_bytes", "_memory"))
        yield (
            f"Extrapolated, beyond half to twice of what was recorded: {values}."
            " Nobody has seen the proxy there; the lines of proxy.conf name the risk of each."
        )


def _tried(advised: Advised) -> Iterator[Part]:
    frame = pd.DataFrame(advised.points).sort_values(["chosen", "holds"])
    state = frame["holds"].map({True: "holds the target", False: "misses the target"})
    # Where all were refused the wait is 0, and nobody had it.
    answered = frame["refused"] < frame["requests"]
    curve = pd.DataFrame(
        {
            "memory_mib": frame["memory_bytes"] / _MIB,
            "refused_share": frame["refused"] / frame["requests"].clip(lower=1),
            "wait_seconds": frame["wait_p99_us"].where(answered) / _SECOND,
            "state": state.where(~frame["chosen"], "advice"),
        }
    )
    held = int(frame["holds"].sum())
    yield charts.trade_off(curve, f"{len(frame)} sets of limits were tried, {held} of them hold the target.")
    kept = [row for row in advised.points if row["chosen"] or row["best"]]
    yield sheet(
        "The best limits: nothing cheaper holds the target with as many proxies",
        sorted(kept, key=lambda row: (row["fleet"], row["memory_bytes"]))[:_MOST_ROWS],
        {
            "proxies": cell("{} x".format, "fleet"),
            "heap": cell(limit, "heap_limit_bytes"),
            "direct": cell(limit, "direct_limit_bytes"),
            "all memory": cell(limit, "memory_bytes"),
            "refused": _refused,
            "replayed p99 of the answered": cell(duration, "wait_p99_us"),
            "advice": lambda row: "this one" if row["chosen"] else "",
        },
        words=("advice",),
    )


def _trust(judged: dict[str, Judged]) -> Iterator[Part]:
    whole, row = judged[ALL], judged[ALL].row
    yield (
        "How far to believe the replay: under the very limits that were in force, outcomes differ by at most"
        f" {share(whole.outcome_error)} of the requests from what was recorded. 99 % of the answered waited at most"
        f" {duration(row['recorded_p99_us'])}, all waits together, or {duration(whole.recorded_us)} without the"
        f" machine's own delays; in the replay {duration(whole.simulated_us)}. Weighed by the wait of the target the"
        f" error is {share(whole.error)}, and by that advice is given or not."
    )
    if whole.refusals:
        yield f"{whole.refusals}."
    if row["late_p99_us"] >= LATE_US:
        yield (
            f"The machine itself delayed requests: by {duration(row['late_p50_us'])} in the median, and by"
            f" {duration(row['late_p99_us'])} or more in 1 % of the answered ones. No limit changes that, and it is no"
            " error of the replay."
        )
    yield (
        "Clients come when they came, retries are in the record as arrivals, and brokers take as long as they took,"
        " however much is asked of them."
    )
    yield sheet(
        "Recorded / replayed, under the limits that were in force",
        [{**one.row, "error": one.error} for one in list(judged.values())[:_MOST_PROXIES]],
        {
            "proxy": lambda row: shown(row["proxy_id"]) if row["proxy_id"] else "all",
            "answered": _both(count, "ok"),
            "refused": _both(count, "refused"),
            "cancelled": _both(count, "cancelled"),
            "p50 of the answered": _both(duration, "p50_us"),
            "p99 of the answered": _both(duration, "p99_us"),
            "error": cell(share, "error"),
        },
        words=("proxy",),
    )


def _both(write: Callable[[Any], str], what: str) -> Callable[[Row], str]:
    """Return what writes one figure as it was recorded and as the replay has it."""
    return lambda row: f"{write(row[f'recorded_{what}'])} / {write(row[f'simulated_{what}'])}"


def _no_advice(judged: dict[str, Judged]) -> str:
    if ALL not in judged:
        return "the jobs whatif and advise have not run"
    return "the job advise has not run, or does not believe the replay"
