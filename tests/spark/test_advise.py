from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from pipeline.advise import AdviseSettings, AdviseSummary, advise
from pipeline.choice import Target
from pipeline.errors import ExitCode, PipelineError
from pipeline.options import CommonSettings
from pipeline.replay.grid import Grid
from pipeline.replay.model import MIB, Outcome
from pipeline.schema import event_schema
from pipeline.sinks import read_table, write_table
from pipeline.tables.events import EVENTS
from pipeline.tables.whatif import ADVICE, CALIBRATION, WHATIF
from pipeline.whatif import WhatifSettings, WhatifSummary, whatif
from tests.support.replay_events import requests, storm

REACHABLE = Target(load=2, max_refused=0.0, p99_wait_us=5_000_000)


@pytest.fixture(scope="module")
def common(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> CommonSettings:
    settings = CommonSettings(str(tmp_path_factory.mktemp("advise") / "out"), "parquet", None, {})
    frame = spark.createDataFrame(requests(*storm(2, 400)), event_schema())
    dated = frame.selectExpr("*", "date(timestamp_micros(ts_us)) AS date", "hour(timestamp_micros(ts_us)) AS hour")
    write_table(spark, settings, EVENTS, dated)
    return settings


@pytest.fixture(scope="module")
def tried(spark: SparkSession, common: CommonSettings) -> WhatifSummary:
    grid = Grid({"heap_bytes": (MIB, 4 * MIB), "direct_bytes": (MIB, 64 * MIB)}, loads=(1, 2), fleets=(1, 2))
    said: list[str] = []
    summary = whatif(spark, WhatifSettings(common, grid), said.append)
    assert any(line.startswith("calibration of all proxies: recorded 400 ok") for line in said)
    assert "0.0 % imputed" in said[0]
    return summary


def rows(spark: SparkSession, common: CommonSettings, table: Any) -> list[Row]:
    return read_table(spark, common, table).collect()


def test_whatif_has_a_row_for_each_scenario_and_loses_no_request(
    spark: SparkSession, common: CommonSettings, tried: WhatifSummary
) -> None:
    found = rows(spark, common, WHATIF)
    assert len(found) == tried.scenarios == 16
    outcomes = [outcome.name.lower() for outcome in Outcome]
    assert {sum(row[name] for name in outcomes) for row in found} == {400}
    assert {sum(row.wait_buckets.values()) for row in found} == {400}
    assert {(row.fleet, row.proxies) for row in found} == {(1, 2), (2, 4)}
    waits = {(row.heap_limit_bytes, row.load): row.wait_p99_us for row in found if row.fleet == 1}
    assert waits[MIB, 2] > waits[4 * MIB, 2]


def test_calibration_has_a_row_for_each_proxy_and_one_for_all(
    spark: SparkSession, common: CommonSettings, tried: WhatifSummary
) -> None:
    found = {row.proxy_id: row for row in rows(spark, common, CALIBRATION)}
    assert sorted(found) == ["", "p0", "p1"]
    assert found[""].requests == found["p0"].requests + found["p1"].requests == 400
    assert found[""].recorded_ok == 400


@pytest.fixture(scope="module")
def advised(spark: SparkSession, common: CommonSettings, tried: WhatifSummary) -> AdviseSummary:
    return advise(spark, AdviseSettings(common, REACHABLE, headroom=0.5, max_error=1.0), lambda _: None)


def test_advice_is_refined_between_the_points_of_the_grid(
    spark: SparkSession, common: CommonSettings, advised: AdviseSummary
) -> None:
    held = advised.advice.held
    assert held.refused == 0
    assert held.wait_p99_us <= REACHABLE.p99_wait_us
    curve = rows(spark, common, ADVICE)
    assert {row.step for row in curve} >= {"grid", "final"}
    assert [(row.step, row.heap_limit_bytes) for row in curve if row.chosen] == [
        ("final", advised.advice.final.limits.heap_bytes)
    ]
    assert all(row.memory_bytes >= held.memory_bytes for row in curve if row.holds and row.step != "final")
    assert {row.best for row in curve if row.best} == {True}


def test_headroom_is_in_the_fragment_and_in_its_file(common: CommonSettings, advised: AdviseSummary) -> None:
    held, final = advised.advice.held.limits, advised.advice.final.limits
    assert final.heap_bytes >= 1.5 * held.heap_bytes
    assert f"maxTopicListInFlightHeapMemSizeMB={final.heap_bytes // MIB}\n" in advised.conf
    assert (Path(common.out) / "advice.conf").read_text() == advised.conf


def test_target_that_nothing_holds_ends_with_what_to_try(
    spark: SparkSession, common: CommonSettings, tried: WhatifSummary
) -> None:
    target = replace(REACHABLE, p99_wait_us=0)
    with pytest.raises(PipelineError, match="nothing in the grid holds the target at load 2"):
        advise(spark, AdviseSettings(common, target, max_error=1.0), lambda _: None)


def test_no_advice_above_the_error_of_the_calibration(
    spark: SparkSession, common: CommonSettings, tried: WhatifSummary
) -> None:
    with pytest.raises(PipelineError, match="no advice") as caught:
        advise(spark, AdviseSettings(common, REACHABLE, max_error=-1.0), lambda _: None)
    assert caught.value.code == ExitCode.CALIBRATION


def test_load_that_was_not_tried_is_named(spark: SparkSession, common: CommonSettings, tried: WhatifSummary) -> None:
    with pytest.raises(PipelineError, match="--load: got 7"):
        advise(spark, AdviseSettings(common, replace(REACHABLE, load=7), max_error=1.0), lambda _: None)
