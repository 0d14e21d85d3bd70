"""The job `whatif`: prepare the trace, calibrate on the recorded limits, replay the grid, and write the tables.

Rule: calibration comes first and is printed, so that nobody sees a scenario without knowing how far to trust it. The
results of earlier runs are withdrawn before the trace is made anew, and the table `whatif` is the last that is written:
if it has rows, all others are of the same run, and a job that is killed leaves nothing to advise by.
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isnan
from pathlib import Path
from typing import Any, Final

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.core.buckets import quantile
from pipeline.core.calibration import ALL, LATE_US, PROMISED_MS, Judged, judge, refuse_promise
from pipeline.core.errors import ExitCode
from pipeline.core.model import WAITS, Limits
from pipeline.core.options import CommonSettings, add_common, add_promise, common_settings
from pipeline.core.paths import conf_path, is_fragment
from pipeline.core.periods import ALWAYS, Period, add_period, given_period, in_period
from pipeline.core.tables.events import EVENTS
from pipeline.core.tables.history import CALIBRATION_HISTORY
from pipeline.core.tables.whatif import ADVICE, CALIBRATION, OUTCOME_COLUMNS, REPLAY_INPUT, REPLAYED, WHATIF
from pipeline.replay.calibrate import calibrate
from pipeline.replay.grid import Grid, add_grid, grid_of
from pipeline.replay.job import Place, Total, replay_grid
from pipeline.replay.parts import survey
from pipeline.replay.tally import longest
from pipeline.replay.traces import Prepared, limit_values, prepare, replayed_rows
from pipeline.replay.windows import window_rows
from pipeline.running.session import at_work
from pipeline.store.history import add_row, keep_days
from pipeline.store.tables import read, read_table, write_rows

Say = Callable[[str], None]
# Rows of `Aggregates.waits`: all waits together, and those for heap memory to grow.
_TOTAL, _GROWTH = WAITS.index("total"), WAITS.index("heap_update")
# An error up to this leaves nothing to look for.
CLOSE: Final = 0.05
# For a proxy with an empty name, which no directory of `replay_input` can have.
NAMELESS: Final = "(no name)"


@dataclass(frozen=True, slots=True)
class WhatifSettings:
    """Where tables and advice are, which events and scenarios to try, and the wait that errors of waits are weighed by.

    Raises PipelineError for what cannot be meant.
    """

    common: CommonSettings
    grid: Grid
    promised_us: float = PROMISED_MS * 1000
    period: Period = ALWAYS
    conf_file: str | None = None

    def __post_init__(self) -> None:
        refuse_promise(self.promised_us)


@dataclass(frozen=True, slots=True)
class WhatifSummary:
    """The scope of a replay: the trace, how far to trust it, and the number of scenarios."""

    prepared: Prepared
    calibration: Judged
    scenarios: int

    def __str__(self) -> str:
        return f"{self.scenarios} scenarios, error of the calibration {self.calibration.error:.3f}"


def whatif(spark: SparkSession, settings: WhatifSettings, say: Say = print) -> WhatifSummary:
    """Write `replay_input`, `calibration` and `whatif`; raises PipelineError if there is nothing to replay."""
    common, grid = settings.common, settings.grid
    name = F.col("proxy_id")
    whole = read_table(spark, common, EVENTS).withColumn("proxy_id", F.when(name == "", NAMELESS).otherwise(name))
    events = in_period(whole, settings.period)
    prepared = prepare(spark, events, replay_path(common), lambda: _withdraw_all(spark, settings))
    limits = grid.limits(prepared.usual_limits, *prepared.largest)
    imputed = f"{100 * prepared.imputed_share:.1f} % imputed"
    say(f"{prepared.rows} requests of {len(prepared.proxies)} proxies; {imputed}")
    write_rows(spark, common, REPLAYED, replayed_rows(prepared))
    rows, judged = _calibrated(spark, prepared, settings.promised_us, say)
    write_rows(spark, common, CALIBRATION, rows)
    error = judged[ALL].error
    history = run_row(prepared, settings.promised_us) | {"error": None if isnan(error) else float(error)}
    names = [column.name for column in CALIBRATION_HISTORY.columns if column.name not in history]
    add_row(spark, common, CALIBRATION_HISTORY, history | {name: judged[ALL].row[name] for name in names})
    keep_days(spark, common, whole, settings.period)
    for proxy_id, each in judged.items():
        if proxy_id == ALL or len(prepared.proxies) > 1:
            say(shown_calibration(each))
    found = survey(spark, prepared, rows=window_rows(grid.loads))
    places = [Place(load, fleet) for load in grid.loads for fleet in grid.fleets]
    loads, fleets = (", ".join(map(str, numbers)) for numbers in (grid.loads, grid.fleets))
    say(f"{len(limits)} sets of limits at loads {loads} on fleets {fleets}")
    totals = replay_grid(spark, prepared, found, places, limits)
    write_rows(spark, common, WHATIF, scenario_rows(prepared, limits, totals))
    return WhatifSummary(prepared, judged[ALL], len(totals))


def _calibrated(
    spark: SparkSession, prepared: Prepared, promised_us: float, say: Say
) -> tuple[list[dict[str, object]], dict[str, Judged]]:
    """Replay the recorded limits, with all of direct memory; if that is off, with the part of unproven clients, too.

    Events do not tell whose clients have shown that they read. After a network fault nobody has, and the proxy gives
    lists no more than that part: the replay that is closer to what was recorded tells which it was.
    """
    found, percent = survey(spark, prepared, by_limits=True), prepared.seen.unproven_readers_percent

    shares = {ALL: prepared.imputed_share} | {proxy.proxy_id: proxy.imputed / proxy.rows for proxy in prepared.proxies}

    def judged_with(part: int) -> tuple[list[dict[str, object]], dict[str, Judged]]:
        rows = [each.row(shares[each.proxy_id]) for each in calibrate(spark, prepared, found, part)]
        return rows, judge(rows, promised_us)

    whole = judged_with(100)
    if percent == 100 or whole[1][ALL].error <= CLOSE:
        return whole
    part = judged_with(percent)
    if not part[1][ALL].error < whole[1][ALL].error:
        return whole
    say(
        f"lists are replayed with {percent} % of direct memory, which clients have that have not shown that they read"
        f" (topicListUnprovenReadersMemoryPercent): with all of it the error is {whole[1][ALL].error:.3f}"
    )
    return part


def run_row(prepared: Prepared, promised_us: float) -> dict[str, Any]:
    """Return the columns that all histories have."""
    return {
        "made_at": datetime.now(UTC),
        "cluster": prepared.cluster,
        "first_us": min(proxy.first_us for proxy in prepared.proxies),
        "last_us": max(proxy.last_us for proxy in prepared.proxies),
        "promised_wait_us": float(promised_us),
    }


def replay_path(common: CommonSettings) -> str:
    """Return where `replay_input` is, the same place for Spark and for pyarrow."""
    place = common.out if "://" in common.out else f"file://{os.path.abspath(common.out)}"
    return f"{place}/{REPLAY_INPUT.name}"


def shown_calibration(found: Judged) -> str:
    """Describe in a line how the replay of the recorded limits compares."""
    row = found.row
    late = (
        f"; the machine was late by {row['late_p50_us'] / 1000:.0f} ms, in 1 % by {row['late_p99_us'] / 1000:.0f} ms or"
        " more, which is no wait of the limiter"
        if row["late_p99_us"] >= LATE_US
        else ""
    )
    sides = [
        f"{side} {row[f'{side}_ok']} ok, {row[f'{side}_refused']} refused, {row[f'{side}_cancelled']} cancelled,"
        f" p99 wait {row[f'{side}_p99_us'] / 1000:.0f} ms"
        for side in ("recorded", "simulated")
    ]
    return (
        f"calibration of {row['proxy_id'] or 'all proxies'}: {'; '.join(sides)}; error {found.error:.3f},"
        f" of waits {found.wait_error:.3f} ({found.waits}){late}"
    )


def scenario_rows(
    prepared: Prepared, limits: Sequence[Limits], totals: Mapping[tuple[Place, int], Total]
) -> list[dict[str, Any]]:
    """Return the rows of the table `whatif`."""
    rows = []
    for (place, scenario), total in totals.items():
        counts = total.counts
        waits = counts.waits[_TOTAL]
        names = (column.name for column in OUTCOME_COLUMNS)
        rows.append(
            {
                "scenario": scenario,
                **limit_values(limits[scenario]),
                "load": place.load,
                "fleet": place.fleet,
                "proxies": place.fleet * len(prepared.proxies),
                "requests": int(counts.outcomes.sum()),
                **dict(zip(names, counts.outcomes.tolist(), strict=True)),
                **{f"wait_p{share}_us": quantile(waits, share / 100) for share in (50, 95, 99)},
                "wait_max_us": longest(waits),
                "peak_heap_bytes": counts.peak_heap_bytes,
                "peak_direct_bytes": counts.peak_direct_bytes,
                "questions": counts.questions,
                "growths_waited": int(counts.waits[_GROWTH][1:].sum()),
                "imputed_share": prepared.imputed_share,
                "short_warm_ups": total.short_warm_ups,
                # Position 0 counts waits of nothing, which have the bucket -1.
                "wait_buckets": {int(at) - 1: int(waits[at]) for at in np.flatnonzero(waits)},
            }
        )
    return rows


def _withdraw_all(spark: SparkSession, settings: WhatifSettings) -> None:
    common = settings.common
    for table in (WHATIF, CALIBRATION):
        if read(spark, common, table) is not None:
            write_rows(spark, common, table, [])
    withdraw_advice(spark, common, conf_path(common.out, settings.conf_file))


def withdraw_advice(spark: SparkSession, common: CommonSettings, conf: Path | None) -> None:
    """Take back what an earlier run advised: the rows of the table, and the file if it is a fragment of ours."""
    table = read(spark, common, ADVICE)
    if table is not None and not table.isEmpty():
        write_rows(spark, common, ADVICE, [])
    if conf is not None and is_fragment(conf):
        conf.unlink(missing_ok=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_common(parser)
    add_period(parser)
    add_grid(parser)
    add_promise(parser)


def run(options: argparse.Namespace) -> int:
    """Run the job; raises PipelineError."""
    settings = WhatifSettings(
        common_settings(options), grid_of(options), options.p99_wait_ms * 1000, given_period(options)
    )
    with at_work("whatif", settings.common) as spark:
        summary = whatif(spark, settings)
    print(f"{summary.scenarios} scenarios in the table whatif of {settings.common.out}")
    return ExitCode.OK
