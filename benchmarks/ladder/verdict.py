"""Owns the judgement: measured rows in, ratios and checks out, each with what it had to reach. No I/O."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.ladder.estimate import Estimate, estimate, paired_ratio
from benchmarks.ladder.measure import Measured
from benchmarks.ladder.rows import MIB, ROWS, Ratio, Scenario

# 500 relays, one direction stalled: one read of relayBufferBytes each, and two connections at rest.
STALLED_LIMIT_BYTES = 500 * (256 * 1024 + 2 * 8192)
IDLE_LIMIT_BYTES = 8 * 1024
START_LIMIT_SECONDS = 0.6
STORM_ANSWERS = 4000
FAULTS = ("refused", "lost", "wrong")
PAIRS_NEEDED = 7

Json = dict[str, Any]


def row_json(measured: Measured, quantity: str) -> Json:
    """Return what is kept of a row: every report, and the estimate of its quantity."""
    kept: Json = {"peak_rss_bytes": measured.peak_rss_bytes, "threads": measured.threads}
    if measured.reports and quantity in measured.reports[0]:
        kept[quantity] = estimate(measured.series(quantity)).as_json()
    kept["faults"] = {name: _sum(measured, name) for name in FAULTS if name in measured.reports[0]}
    kept["runs"] = measured.reports
    return kept


def ratio_json(ratio: Ratio, rows: dict[str, Measured], main_quantity: str) -> Json | None:
    """Return a ratio with its verdict; nothing if one of its rows was not run."""
    quantity = main_quantity if ratio.quantity == "per_second" else ratio.quantity
    known = [name for name in ratio.under if name in rows]
    if ratio.over not in rows or len(known) < len(ratio.under):
        return None
    under = max(known, key=lambda name: median(_series(rows[name], quantity)))
    found = paired_ratio(_series(rows[ratio.over], quantity), _series(rows[under], quantity))
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


def _series(measured: Measured, quantity: str) -> list[float]:
    if quantity == "peak_rss_bytes":
        return [float(measured.peak_rss_bytes)]
    return measured.series(quantity)


def _reached(found: Estimate, ratio: Ratio) -> bool:
    if ratio.required is None:
        return True
    return found.median <= ratio.required if ratio.at_most else found.median >= ratio.required


def _sum(measured: Measured, name: str) -> int:
    return int(sum(float(report.get(name, 0)) for report in measured.reports))


def check(what: str, row: str, got: float, required: float, *, at_most: bool = True) -> Json:
    reached = got <= required if at_most else got >= required
    return {"what": what, "row": row, "got": got, "required": required, "at_most": at_most, "reached": reached}


def checks(name: str, rows: dict[str, Measured]) -> list[Json]:
    """Return the scenario's absolute promises, for the rows of our own proxy."""
    found: list[Json] = []
    for row, measured in rows.items():
        if ROWS[row].server != "ours":
            continue
        report = measured.reports[0]
        if name == "idle":
            got = float(report["bytes_per_connection"])
            found.append(check("bytes per connection at rest", row, got, IDLE_LIMIT_BYTES))
        elif name == "start":
            got = round(median(measured.series("seconds")), 3)
            found.append(check("seconds from exec to CONNECTED", row, got, START_LIMIT_SECONDS))
        elif name == "stalled-consumers":
            grown = float(report["peak_rss_bytes"]) - float(report["idle_rss_bytes"])
            found.append(check("peak RSS above idle, bytes", row, grown, STALLED_LIMIT_BYTES))
        elif name == "late-readers":
            found += _storm_checks(row, measured)
        found += [check(fault, row, _sum(measured, fault), 0) for fault in FAULTS if fault in report]
    return found


def _storm_checks(row: str, measured: Measured) -> list[Json]:
    report = measured.reports[0]
    grown = float(report["peak_rss_bytes"]) - float(report["idle_rss_bytes"])
    return [
        check("answers", row, float(report["answered"]), STORM_ANSWERS, at_most=False),
        check("peak RSS above idle, bytes", row, grown, storm_budget_bytes(row)),
    ]


def storm_budget_bytes(row: str) -> int:
    """Return 1.15 of both limits, 8 KiB a connection and two of the largest answer; nothing is relayed here."""
    limits = sum(int(value) for key, value in ROWS[row].settings if key.endswith("MemSizeMB")) * MIB
    connections, answer_bytes = 1000, 10_000 * 102
    return int(1.15 * limits) + 8 * 1024 * connections + 2 * answer_bytes


def invalid(scenario: Scenario, ratios: list[Json], rows: dict[str, Measured]) -> list[str]:
    """Return why nothing may be concluded from this run; empty if it counts."""
    reasons = [
        f"row {ratio['over']} is {ratio['median']:.2f} of row {ratio['under']}, expected {ratio['required']}"
        for ratio in ratios
        if ratio["validity"] and not ratio["reached"]
    ]
    reasons += [f"row {name} was not run" for name in scenario.rows if name not in rows]
    pairs = min(len(measured.reports) for measured in rows.values())
    if scenario.kind == "paired" and pairs < PAIRS_NEEDED:
        reasons.append(f"{pairs} pairs, expected {PAIRS_NEEDED}")
    return reasons
