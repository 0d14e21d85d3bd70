"""The views in deploy/pipeline/views.sql, over small tables, in Spark."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.core.options import CommonSettings
from tests.support.pipeline.catalog import HERE, database, fill

DAY = date(2026, 1, 1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
GIB = 2**30
VIEWS = {
    "costs_by_namespace", "costs_by_principal", "questions_by_broker", "outcomes_by_hour", "refusals_by_reason",
    "waits_by_hour", "arrivals_by_minute", "storms_and_leaders", "savings_by_day", "slowed_topics",
    "quarantined_by_day",
}  # fmt: skip


@pytest.fixture(scope="module")
def views(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Give a session whose current database has small tables of two clusters, and the views."""
    common = CommonSettings(str(tmp_path_factory.mktemp("views")), None, {})
    with database(spark, "of_views"):
        _fill(spark, common)
        for statement in (HERE / "views.sql").read_text().split(";")[:-1]:
            spark.sql(statement)
        yield spark


def _fill(spark: SparkSession, common: CommonSettings) -> None:
    usual = {"date": DAY, "window_start": NOON, "window_seconds": 60, "tenant": "t", "namespace": "t/a"}
    fill(
        spark, common, "usage",
        {**usual, "cluster": "east", "proxy_id": "p1", "broker": "b1", "principal": "ann", "requests": 3, "answered": 2,
         "refused": 1, "timeout_heap": 1, "questions": 3, "heap_byte_seconds": 2.0 * GIB, "max_response_bytes": 7},
        {**usual, "cluster": "east", "proxy_id": "p2", "broker": "b1", "principal": "ann", "requests": 2, "answered": 1,
         "refused": 1, "queue_full_direct": 1, "questions": 1, "heap_byte_seconds": 1.0 * GIB, "max_response_bytes": 9,
         "window_start": NOON + timedelta(minutes=59)},
        {**usual, "cluster": "west", "proxy_id": "p1", "principal": "bob", "requests": 5, "answered": 5},
    )  # fmt: skip
    waited = {**usual, "proxy_id": "p1", "wait": "memory"}
    counts = (("east", -1, 50), ("east", 159, 40), ("east", 160, 10), ("west", 300, 1))
    fill(spark, common, "waits", *({**waited, "cluster": of, "bucket": at, "count": n} for of, at, n in counts))
    seconds: list[dict[str, Any]] = [
        {"date": DAY, "second": NOON + timedelta(seconds=at), "cluster": "east", "proxy_id": proxy,
         "requests": requests, "max_heap_used_bytes": 50, "heap_limit_bytes": 100}
        for at, proxy, requests in ((0, "p1", 4), (0, "p2", 5), (1, "p1", 6))
    ]  # fmt: skip
    fill(spark, common, "arrivals", *seconds)
    storm = {"date": DAY, "cluster": None, "storm": 1}
    fill(spark, common, "storms", {**storm, "begin": NOON, "end": NOON, "requests": 10, "peak_rate": 9})
    fill(
        spark, common, "storm_members",
        {**storm, "dimension": "namespace", "rank": 1, "name": "t/a", "requests": 7},
        {**storm, "dimension": "namespace", "rank": 2, "name": "t/b", "requests": 3},
        {**storm, "dimension": "principal", "rank": 1, "name": "ann", "requests": 10},
    )  # fmt: skip
    fill(spark, common, "sharing", {"date": DAY, "hour_start": NOON, "requests": 4, "coalesced": 1})
    limited = {"date": DAY, "hour_start": NOON, "throttle": "adaptive", "topic": "t/a/x", "reason": "memory"}
    rates = {"natural_bytes_per_second": 10.0, "allowed_bytes_per_second": 5.0}
    fill(
        spark, common, "slowed",
        {**limited, **rates, "seconds": 2.0},
        {**limited, **rates, "seconds": 1.0, "hour_start": NOON + timedelta(hours=1)},
        {**limited, **rates, "seconds": 4.0, "cluster": "west"},
        {**limited, "throttle": "threshold", "topic": None, "seconds": 9.0},
    )  # fmt: skip
    bad = {"date": DAY, "reason": "malformed", "ingested_at": NOON}
    fill(spark, common, "quarantine", *({**bad, "source": f"{n}", "digest": f"{n}", "copies": n} for n in (1, 2)))


def asked(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(query).collect()]


def test_every_view_has_rows(views: SparkSession) -> None:
    found = {row.viewName for row in views.sql("SHOW VIEWS").collect()}
    assert found == VIEWS
    assert all(asked(views, f"SELECT * FROM {name}") for name in sorted(VIEWS))


def test_costs_are_of_one_cluster_each(views: SparkSession) -> None:
    found = asked(views, "SELECT cluster, requests, heap_gib_seconds, largest_answer_bytes FROM costs_by_namespace")
    assert sorted(found) == [("east", 5, 3.0, 9), ("west", 5, 0.0, 0)]
    found = asked(views, "SELECT cluster, principal, requests FROM costs_by_principal")
    assert sorted(found) == [("east", "ann", 5), ("west", "bob", 5)]
    found = asked(views, "SELECT cluster, broker, questions, failed_requests FROM questions_by_broker")
    assert found == [("east", "b1", 4, 0)]


def test_outcomes_are_of_hours_and_proxies_and_refusals_have_their_reason(views: SparkSession) -> None:
    found = asked(views, "SELECT cluster, proxy_id, answered, refused FROM outcomes_by_hour")
    assert sorted(found) == [("east", "p1", 2, 1), ("east", "p2", 1, 1), ("west", "p1", 5, 0)]
    found = asked(views, "SELECT cluster, reason, refused FROM refusals_by_reason")
    assert sorted(found) == [("east", "queue_full_direct", 1), ("east", "timeout_heap", 1)]


def test_quantiles_of_waits_are_those_of_their_buckets(views: SparkSession) -> None:
    east, west = sorted(asked(views, "SELECT cluster, requests, p50_seconds, p99_seconds FROM waits_by_hour"))
    assert east[:3] == ("east", 100, 0.0)
    # Bucket 160 begins at 2 ** 20 us.
    assert east[3] == pytest.approx(2**20 / 1e6, rel=0.05)
    assert west[:2] == ("west", 1)


def test_busiest_second_is_of_all_proxies_together(views: SparkSession) -> None:
    found = asked(views, "SELECT requests, busiest_second, heap_ratio, direct_ratio FROM arrivals_by_minute")
    assert found == [(15, 9, 0.5, None)]


def test_storm_of_a_cluster_without_a_name_has_its_leaders(views: SparkSession) -> None:
    shown = "namespace, namespace_share, principal, principal_share"
    assert asked(views, f"SELECT {shown} FROM storms_and_leaders") == [("t/a", 0.7, "ann", 1.0)]


def test_the_rest_is_added_up_by_day(views: SparkSession) -> None:
    assert asked(views, "SELECT coalesced_share FROM savings_by_day") == [(0.25,)]
    slowed = asked(views, "SELECT cluster, topic, seconds, allowed_share FROM slowed_topics ORDER BY cluster")
    assert slowed == [(None, "t/a/x", 3.0, 0.5), ("west", "t/a/x", 4.0, 0.5)]
    assert asked(views, "SELECT reason, rows FROM quarantined_by_day") == [("malformed", 3)]
