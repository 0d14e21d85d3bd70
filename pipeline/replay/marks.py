"""Recorded memory replayed under other marks: events of the kind `throttle` to the table `whatif_marks`."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.core.marks import Marks, replay_marks
from pipeline.core.tables.slowed import WHATIF_MARKS

MICROS: Final = 1_000_000
MINUTE: Final = 60
_SUMS: Final = ("seconds", "pressed_seconds", "paused_seconds", "known", "ratio_sum", "pressure_sum", "share_sum")
_PART: Final = (
    "proxy_id string, minute long, high double, low double, seconds long, pressed_seconds long, paused_seconds long,"
    " known long, ratio_sum double, pressure_sum double, share_sum double, max_pressure double,"
    " least_allowed_share double"
)


def replayed(events: DataFrame, marks: Sequence[Marks]) -> DataFrame:
    """Return the table `whatif_marks`; each start of a proxy begins with nobody slowed.

    A task holds the samples of one start, at most one a second: 1.4 MB a day.
    """
    second = F.expr(f"ts_us div {MICROS}").alias("second")
    decided = events.where("kind = 'throttle' AND throttle_by IS NOT NULL")
    samples = decided.groupBy("proxy_id", "boot_id", second).agg(
        F.max_by("throttle_ratio_permille", "seq").alias("ratio")
    )
    wanted = tuple(marks)

    def replay(start: pd.DataFrame) -> pd.DataFrame:
        found = start.sort_values("second")
        ratios = [None if pd.isna(ratio) else ratio / 1000 for ratio in found["ratio"]]
        pairs = list(zip(map(int, found["second"]), ratios, strict=True))
        rows = [row for each in wanted for row in minutes(pairs, each)]
        columns = [word.split()[0] for word in _PART.split(", ")]
        return pd.DataFrame(rows, columns=columns[1:]).assign(proxy_id=found["proxy_id"].iloc[0])[columns]

    parts = samples.groupBy("proxy_id", "boot_id").applyInPandas(replay, _PART)
    whole = parts.groupBy("proxy_id", "minute", "high", "low").agg(
        *(F.sum(name).alias(name) for name in _SUMS),
        F.max("max_pressure").alias("max_pressure"),
        F.min("least_allowed_share").alias("least_allowed_share"),
    )
    minute = F.timestamp_seconds("minute")
    return whole.withColumns(
        {
            "minute": minute,
            "date": F.to_date(minute),
            "ratio": F.when(F.col("known") > 0, F.col("ratio_sum") / F.col("known")),
            "pressure": F.col("pressure_sum") / F.col("seconds"),
            "allowed_share": F.col("share_sum") / F.col("seconds"),
        }
    ).select([column.name for column in WHATIF_MARKS.columns])


def minutes(samples: Sequence[tuple[int, float | None]], marks: Marks) -> Iterator[dict[str, Any]]:
    """Add the replay of one start up by minutes."""
    row: dict[str, Any] = {}
    for step in replay_marks(samples, marks):
        minute = step.second // MINUTE * MINUTE
        if row.get("minute") != minute:
            if row:
                yield row
            row = {"minute": minute, "high": marks.high, "low": marks.low, "max_pressure": 0.0}
            row |= {"least_allowed_share": 1.0, **dict.fromkeys(_SUMS, 0)}
        row["seconds"] += 1
        row["pressed_seconds"] += step.pressure > 0
        row["paused_seconds"] += step.paused
        row["known"] += step.ratio is not None
        row["ratio_sum"] += step.ratio or 0.0
        row["pressure_sum"] += step.pressure
        row["share_sum"] += step.share
        row["max_pressure"] = max(row["max_pressure"], step.pressure)
        row["least_allowed_share"] = min(row["least_allowed_share"], step.share)
    if row:
        yield row
