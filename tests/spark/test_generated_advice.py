"""Who tries the pipeline with synthetic events comes to an advice: `generate` as it is by default, then the jobs."""

from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.pipeline.generate.__main__ import main
from pipeline.core.choice import Target
from pipeline.core.model import MIB
from pipeline.core.options import CommonSettings
from pipeline.core.tables.history import ADVICE_HISTORY, CALIBRATION_HISTORY, LIMITS_BY_DAY
from pipeline.jobs.advise import AdviseSettings, advise
from pipeline.jobs.whatif import WhatifSettings, whatif
from pipeline.replay.grid import Grid
from pipeline.store.sinks import read_table

GRID = Grid({"heap_bytes": (64 * MIB, 256 * MIB), "direct_bytes": (64 * MIB, 256 * MIB)}, (1, 10), (1,))
TARGET = Target(load=10, max_refused=0.0, p99_wait_us=60_000_000)


def generated(out: Path, *options: str) -> CommonSettings:
    words = ["--events", "4000", "--proxies", "2", "--clients", "800", "--rate", "50", "--out", str(out)]
    assert main([*words, *options]) == 0
    return CommonSettings(str(out), "parquet", None, {})


def test_generated_events_end_in_advice_that_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    common = generated(tmp_path / "tables")
    found = whatif(spark, WhatifSettings(common, GRID), lambda _: None)
    assert found.prepared.cluster == "synthetic"
    summary = advise(spark, AdviseSettings(common, TARGET), lambda _: None)
    assert summary.advice.calibration.error <= 0.2
    # A fiftieth of the events are watch frames, which hold direct memory.
    assert summary.advice.watch.size_bytes >= MIB

    kept = read_table(spark, common, ADVICE_HISTORY).collect()
    assert [row.direct_limit_bytes for row in kept] == [summary.advice.limits.direct_bytes]
    assert read_table(spark, common, CALIBRATION_HISTORY).count() == 1
    days = read_table(spark, common, LIMITS_BY_DAY).collect()
    assert {(row.cluster, row.proxy_id) for row in days} == {("synthetic", "proxy-0"), ("synthetic", "proxy-1")}
    assert sum(row.requests for row in days) == found.prepared.rows

    # Another run adds to the histories, and makes the same days anew.
    whatif(spark, WhatifSettings(common, GRID), lambda _: None)
    assert read_table(spark, common, CALIBRATION_HISTORY).count() == 2
    assert sorted(read_table(spark, common, LIMITS_BY_DAY).collect()) == sorted(days)
    assert read_table(spark, common, ADVICE_HISTORY).count() == 1
