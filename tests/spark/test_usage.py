from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.pipeline.generate.output import events_frame
from benchmarks.pipeline.generate.settings import GenerateSettings
from pipeline.transforms.histograms import bucket, quantiles
from pipeline.transforms.usage import DIMENSIONS, sharing, top_costs, usage, waits
from tests.support.pipeline.buckets import bucket_of, middle_us
from tests.support.pipeline.usage_events import SECOND_US, event, frame

GENERATED = GenerateSettings(events=3_000, proxies=2, clients=100, tenants=5, namespaces=20, rate=1.0)


@pytest.fixture(scope="module")
def generated(spark: SparkSession) -> DataFrame:
    events = events_frame(spark, GENERATED).cache()
    assert events.count() == 3_000
    return events


def only_row(found: DataFrame) -> dict[str, Any]:
    rows = found.collect()
    assert len(rows) == 1
    return dict(rows[0].asDict())


def test_sums_of_a_window(spark: SparkSession) -> None:
    well = {"topic_count": 10, "name_bytes": 500, "response_bytes": 600, "heap_actual_bytes": 2000}
    first = event(0, **well, carries_cost=False, group_size=2, heap_wait_us=1000, direct_wait_us=500, total_us=9000)
    # Its group held 2000 bytes of heap for 3 s and 600 of direct memory for 1 s.
    second = event(
        1, **well, coalesced=True, group_size=2, heap_byte_us=6_000_000_000, direct_byte_us=600_000_000,
        heap_update_wait_us=250, total_us=7000,
    )  # fmt: skip
    found = only_row(usage(frame(spark, [first, second]), 60))
    expected = {
        "window_seconds": 60,
        "tenant": "t",
        "namespace": "t/a",
        "principal": "alice",
        "client_version": "v1",
        "requests": 2,
        "answered": 2,
        "refused": 0,
        "coalesced": 1,
        "topics": 20,
        "name_bytes": 1000,
        "response_bytes": 1200,
        "heap_byte_seconds": 6000.0,
        "direct_byte_seconds": 600.0,
        "memory_wait_seconds": 0.00175,
        "max_memory_wait_us": 1500,
        "max_total_us": 9000,
        "max_topics": 10,
        "max_response_bytes": 600,
        "max_heap_bytes": 2000,
        "questions": 1,
        "questions_saved": 1,
        "upstream_bytes_saved": 600,
        "heap_byte_seconds_saved": 6000.0,
        "watch_frames": 0,
    }
    assert {name: found[name] for name in expected} == expected
    assert str(found["window_start"]) == "2026-01-01 12:00:00"


def test_refusals_are_told_apart_by_outcome_and_stage(spark: SparkSession) -> None:
    ends = [
        ("timeout", "heap"), ("timeout", "heap_update"), ("timeout", "direct"), ("timeout", "broker"),
        ("queue_full", "heap"), ("queue_full", "direct"), ("oversize", "upstream"), ("cancelled", "heap"),
        ("upstream_error", "upstream"), ("failed", "write"),
    ]  # fmt: skip
    events = [
        event(n, outcome=outcome, outcome_stage=stage, response_bytes=7, topic_count=1)
        for n, (outcome, stage) in enumerate(ends)
    ]
    found = only_row(usage(frame(spark, events), 60))
    names = ["timeout_heap", "timeout_heap_update", "timeout_direct", "timeout_other", "queue_full_heap"]
    names += ["queue_full_direct", "oversize", "cancelled", "upstream_error", "failed"]
    assert [found[name] for name in names] == [1] * 10
    assert (found["requests"], found["answered"], found["refused"]) == (10, 0, 7)
    # Nobody was sent anything, so nothing of it counts as sent.
    assert (found["topics"], found["response_bytes"]) == (0, 0)


def test_watch_frames_are_counted_apart(spark: SparkSession) -> None:
    watch = event(
        0, kind="watch_update", group_size=None, response_bytes=90, direct_byte_us=5_000_000, direct_wait_us=300,
        total_us=400, outcome="ok",
    )  # fmt: skip
    refused = event(1, kind="watch_init", group_size=None, outcome="timeout", outcome_stage="direct")
    events = frame(spark, [watch, refused])
    found = only_row(usage(events, 60))
    assert (found["watch_frames"], found["watch_refused"], found["watch_bytes"]) == (2, 1, 90)
    assert found["watch_direct_byte_seconds"] == 5.0
    assert (found["requests"], found["refused"], found["direct_byte_seconds"], found["max_total_us"]) == (0, 0, 0.0, 0)
    rows = {(row["wait"], row["bucket"], row["count"]) for row in waits(events, 60).collect()}
    assert rows == {("watch", bucket_of(300), 1), ("watch", -1, 1)}


def test_buckets_of_spark_are_those_of_python(spark: SparkSession) -> None:
    edges = [edge + off for power in range(36) for edge in [1 << power] for off in (-1, 0, 1)]
    found = (
        spark.createDataFrame([(us,) for us in edges], "us long").select("us", bucket(F.col("us")).alias("b")).collect()
    )
    assert [row.b for row in found] == [bucket_of(row.us) for row in found]


def test_quantiles_of_a_hundred_take_the_rank_that_the_share_says(spark: SparkSession) -> None:
    counts = [("a", 8, 99), ("a", 80, 1), ("b", 8, 7), ("b", 80, 93)]
    rows = spark.createDataFrame(counts, "who string, bucket int, count long")
    found = {row["who"]: row for row in quantiles(rows, ["who"], {"p07_us": 0.07, "p99_us": 0.99}).collect()}
    assert found["a"]["p99_us"] == pytest.approx(middle_us(8))
    # 0.07 * 100 is 7.000000000000001.
    assert found["b"]["p07_us"] == pytest.approx(middle_us(8))


def test_nothing_is_lost_between_events_and_tables(generated: DataFrame) -> None:
    events = generated.toPandas()
    lists, watch = events[events["kind"] == "get_topics"], events[events["kind"] != "get_topics"]
    sums = usage(generated, 60).toPandas().sum(numeric_only=True)
    assert sums["requests"] == len(lists)
    assert sums["watch_frames"] == len(watch)
    kinds = ["answered", "refused", "cancelled", "upstream_error", "failed"]
    assert sums[kinds].sum() == len(lists)
    assert sums["questions"] + sums["questions_saved"] == len(lists)
    assert sums["heap_byte_seconds"] == pytest.approx(lists["heap_byte_us"].sum() / 1e6)
    assert sums["direct_byte_seconds"] == pytest.approx(lists["direct_byte_us"].sum() / 1e6)
    assert sums["response_bytes"] == lists.loc[lists["outcome"] == "ok", "response_bytes"].sum()
    counts = waits(generated, 60).groupBy("wait").agg(F.sum("count")).collect()
    assert dict(map(tuple, counts)) == {"memory": len(lists), "total": len(lists), "watch": len(watch)}


def test_those_that_cost_most_come_first_in_each_hour_and_day(spark: SparkSession) -> None:
    hour = 3600 * SECOND_US
    events = [
        event(0, heap_byte_us=1_000_000),
        event(1, heap_byte_us=5_000_000, namespace="u/b"),
        event(hour, heap_byte_us=9_000_000),
        event(hour + 1, heap_byte_us=2_000_000, namespace="u/c"),
        event(24 * hour, heap_byte_us=1_000_000),
    ]
    found = top_costs(usage(frame(spark, events), 60), 2).where("measure = 'heap_byte_seconds'").collect()
    got = {
        (row["date"].day, row["hour_start"] and row["hour_start"].hour, row["dimension"], row["rank"]): (
            row["name"],
            row["value"],
            row["share"],
        )
        for row in found
    }
    assert got[1, None, "namespace", 1] == ("t/a", 10.0, pytest.approx(10 / 17))
    assert got[1, None, "namespace", 2] == ("u/b", 5.0, pytest.approx(5 / 17))
    assert (1, None, "namespace", 3) not in got
    assert got[1, 12, "namespace", 1] == ("u/b", 5.0, pytest.approx(5 / 6))
    assert got[1, 13, "tenant", 2] == ("u", 2.0, pytest.approx(2 / 11))
    assert got[1, None, "principal", 1] == ("alice", 17.0, 1.0)
    assert got[2, None, "namespace", 1] == ("t/a", 1.0, 1.0)
    assert {row["dimension"] for row in found} == set(DIMENSIONS)


def test_what_sharing_saved(spark: SparkSession) -> None:
    group = {"group_size": 5, "heap_byte_us": 2_000_000}
    events = [
        *(event(n, carries_cost=False, coalesced=n > 0, group_size=5) for n in range(4)),
        event(4, coalesced=True, response_bytes=100, **group),
        event(5),
        # A group whose last member left: its answer is known by its names alone.
        event(
            6, namespace="u/b", outcome="cancelled", outcome_stage="write", name_bytes=30, **(group | {"group_size": 2})
        ),
        event(7, namespace="u/b", carries_cost=False, coalesced=True, group_size=2),
    ]
    rows = {row["namespace"]: row.asDict() for row in sharing(usage(frame(spark, events), 60)).collect()}
    expected = {"requests": 6, "coalesced": 4, "questions": 2, "questions_saved": 4, "upstream_bytes_saved": 400}
    assert {name: rows["t/a"][name] for name in expected} == expected
    assert rows["t/a"]["heap_byte_seconds_saved"] == 8.0
    assert (rows["u/b"]["questions_saved"], rows["u/b"]["upstream_bytes_saved"]) == (1, 30)
