"""The history of limits in force: each cluster has days of its own, and a large fleet as many rows as a small one."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.core.options import CommonSettings
from pipeline.core.periods import ALWAYS, Period
from pipeline.core.tables.history import CALIBRATION_HISTORY, LIMITS_BY_DAY
from pipeline.store.drift import PREFIX
from pipeline.store.history import days_together, drift_of, keep_days
from pipeline.store.tables import read_table
from pipeline.transforms.events import with_date
from tests.support.pipeline.catalog import put
from tests.support.pipeline.replay_events import frame


@pytest.fixture
def common(tmp_path: Path) -> CommonSettings:
    return CommonSettings(str(tmp_path / "out"), None, {})


def test_days_of_one_cluster_leave_those_of_others(spark: SparkSession, common: CommonSettings) -> None:
    clusters = [{"at_us": number, "cluster": name} for number, name in enumerate(("east", "west", None))]
    recorded = with_date(frame(spark, *clusters))
    keep_days(spark, common, recorded, ALWAYS)
    keep_days(spark, common, recorded, replace(ALWAYS, cluster="west"))
    found = [(row.cluster, row.requests) for row in read_table(spark, common, LIMITS_BY_DAY).collect()]
    assert sorted(found, key=str) == [("east", 1), ("west", 1), (None, 1)]
    keep_days(spark, common, recorded, Period())
    assert read_table(spark, common, LIMITS_BY_DAY).count() == 3


def test_proxies_with_the_same_limits_are_one_row_of_a_day(spark: SparkSession, common: CommonSettings) -> None:
    waits = {f"p{number}": 1000 * number for number in range(5)}
    fleet = [{"at_us": 0, "proxy_id": name, "heap_wait_us": us, "total_us": 8000 + us} for name, us in waits.items()]
    keep_days(spark, common, with_date(frame(spark, *fleet)), ALWAYS)
    days = read_table(spark, common, LIMITS_BY_DAY)
    assert days.count() == 5
    (row,) = days_together(days).collect()
    assert (row.requests, row.answered, row.refused) == (5, 5, 0)
    assert row.wait_p99_us == max(each.wait_p99_us for each in days.collect()) > 0


def test_drift_is_of_the_latest_run_over_a_cluster_or_over_any(spark: SparkSession, common: CommonSettings) -> None:
    assert drift_of(spark, common).get_sample_value(f"{PREFIX}calibration_error", {"cluster": ""}) is None
    runs = ((1, "west", 0.5), (3, "east", 0.25), (2, "west", 0.125))
    rows = ({"made_at": datetime(2026, 1, day, tzinfo=UTC), "cluster": of, "error": error} for day, of, error in runs)
    put(spark, common, CALIBRATION_HISTORY, *rows)
    for cluster, error in ((None, 0.25), ("west", 0.125)):
        found = drift_of(spark, common, cluster)
        assert found.get_sample_value(f"{PREFIX}calibration_error", {"cluster": cluster or ""}) == error
