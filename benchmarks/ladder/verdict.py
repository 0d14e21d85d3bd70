"""Owns the judgement: measured rows in, ratios and checks out, each with what it had to reach. No I/O."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.ladder.estimate import Estimate, estimate, paired_ratio
from benchmarks.ladder.measure import Measured
from benchmarks.ladder.processor import CPU, processor
from benchmarks.ladder.rows import CONNECTION_BYTES, MIB, ROWS, SPILL, TLS_CONNECTION_BYTES, Bound, Ratio, Scenario

# Lists on their way to and from the disk (docs/memory.md).
SPILL_BYTES = 10 * MIB
GROWN = "peak RSS above idle, bytes"
FAULTS = ("refused", "lost", "wrong", "ping_lost")
PAIRS_NEEDED = 7
THROUGHPUT = ("per_second", "mb_per_second")

Json = dict[str, Any]


def row_json(measured: Measured, quantity: str, cores: int) -> Json:
    """Return what is kept of a row: every report, the estimate of its quantity, and of processor time per unit."""
    kept: Json = {"peak_rss_bytes": measured.peak_rss_bytes, "threads": measured.threads}
    for estimated in (quantity, *CPU.values()):
        if series := _series(measured, estimated):
            kept[estimated] = estimate(series).as_json()
    if found := processor(measured.reports, cores):
        kept["processor"] = found.as_json()
    kept["faults"] = {name: _sum(measured, name) for name in FAULTS if name in measured.reports[0]}
    kept["runs"] = measured.reports
    return kept


def ratio_json(ratio: Ratio, rows: dict[str, Measured], main_quantity: str) -> Json | None:
    """Return a ratio with its verdict; nothing if one of its rows was not run, or has no such figure."""
    quantity = main_quantity if ratio.quantity == "per_second" else ratio.quantity
    series = {name: _series(rows[name], quantity) for name in (ratio.over, *ratio.under) if name in rows}
    if not all(series.get(name) for name in (ratio.over, *ratio.under)):
        return None
    # The best of them: the cheapest where little is wanted.
    best = min if ratio.at_most else max
    under = best(ratio.under, key=lambda name: median(series[name]))
    found = paired_ratio(series[ratio.over], series[under])
    return {
        "over": ratio.over,
        "under": under,
        "quantity": quantity,
        **found.as_json(),
        "required": ratio.required,
        "at_most": ratio.at_most,
        "validity": ratio.validity,
        "reached": _reached(found, ratio),
    }


def uncounted(ratio: Json, ratios: list[Json], rows: dict[str, Measured], cores: int) -> list[str]:
    """Return why a ratio does not count; empty if it does, as all do that are not about throughput.

    Throughput counts if the row without a proxy is far enough ahead in this run, and if processors were what each of
    the two rows waited for.
    """
    if ratio["quantity"] not in THROUGHPUT or ratio["validity"]:
        return []
    idle = [name for name in (ratio["over"], ratio["under"]) if not _limits(rows[name], cores)]
    return [*behind(ratios), *(f"row {name} waited for no processor" for name in idle)]


def behind(ratios: list[Json]) -> list[str]:
    """Return by which of the ratios the row without a proxy is not far enough ahead."""
    return [
        f"row {ratio['over']} is {ratio['median']:.2f} of row {ratio['under']}, expected {ratio['required']}"
        for ratio in ratios
        if ratio["validity"] and not ratio["reached"]
    ]


def _limits(measured: Measured, cores: int) -> tuple[str, ...]:
    found = processor(measured.reports, cores)
    return found.limits if found else ()


def _series(measured: Measured, quantity: str) -> list[float]:
    """Return a figure of each run; nothing if one of the runs lacks it."""
    if quantity == "peak_rss_bytes":
        return [float(measured.peak_rss_bytes)]
    return measured.series(quantity) if all(quantity in report for report in measured.reports) else []


def _reached(found: Estimate, ratio: Ratio) -> bool:
    if ratio.required is None:
        return True
    return found.median <= ratio.required if ratio.at_most else found.median >= ratio.required


def _sum(measured: Measured, name: str) -> int:
    return int(sum(float(report.get(name, 0)) for report in measured.reports))


def check(what: str, row: str, got: float, required: float | None, *, at_most: bool = True) -> Json:
    reached = required is None or (got <= required if at_most else got >= required)
    return {"what": what, "row": row, "got": got, "required": required, "at_most": at_most, "reached": reached}


def checks(scenario: Scenario, rows: dict[str, Measured]) -> list[Json]:
    """Return the scenario's absolute promises, for the rows of our own proxy."""
    found: list[Json] = []
    for row, measured in rows.items():
        if ROWS[row].server != "ours" or ROWS[row].before:
            continue
        for bound in scenario.bounds:
            if bound.rows and row not in bound.rows:
                continue
            got = _of_runs(bound, measured.series(bound.quantity))
            found.append(check(bound.what, row, got, _required(bound, measured), at_most=bound.at_most))
        if scenario.budget is not None:
            found.append(check(GROWN, row, _grown(measured), budget_bytes(scenario, row)))
        faults = [fault for fault in FAULTS if fault in measured.reports[0]]
        # An optional row of ours shows what is without: nothing is asked of it.
        required = None if row in scenario.optional else 0
        found += [check(fault, row, _sum(measured, fault), required) for fault in faults]
    return found


def _required(bound: Bound, measured: Measured) -> float | None:
    if not bound.floor or bound.required is None:
        return bound.required
    return max(bound.required, 2 * max(measured.series(bound.floor)))


def _of_runs(bound: Bound, series: list[float]) -> float:
    if bound.typical:
        return round(median(series), 3)
    return max(series) if bound.at_most else min(series)


def _grown(measured: Measured) -> float:
    return max(float(report["peak_rss_bytes"]) - float(report["idle_rss_bytes"]) for report in measured.reports)


def budget_bytes(scenario: Scenario, row: str) -> int:
    """Return 1.15 of both limits, 8 KiB a connection (under TLS more) and two of the largest answer; nothing is relayed
    here."""
    assert scenario.budget is not None
    each = CONNECTION_BYTES + (TLS_CONNECTION_BYTES if scenario.tls else 0)
    settings = dict(ROWS[row].settings + scenario.settings)
    limits = sum(int(value) for key, value in settings.items() if key.endswith("MemSizeMB")) * MIB
    spill = SPILL_BYTES if SPILL in ROWS[row].settings else 0
    return int(1.15 * limits) + spill + each * scenario.budget.connections + 2 * scenario.budget.answer_bytes


def invalid(scenario: Scenario, rows: dict[str, Measured]) -> list[str]:
    """Return why nothing may be concluded from this run; empty if it counts."""
    reasons = [f"row {name} was not run" for name in scenario.rows if name not in (*rows, *scenario.optional)]
    pairs = min(len(measured.reports) for measured in rows.values())
    if scenario.kind == "paired" and pairs < PAIRS_NEEDED:
        reasons.append(f"{pairs} pairs, expected {PAIRS_NEEDED}")
    return reasons
