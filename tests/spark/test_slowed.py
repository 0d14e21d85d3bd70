"""Who was slowed, and other marks, from events of the kind throttle; answers are worked out here by hand."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.core.marks import Marks
from pipeline.core.options import CommonSettings
from pipeline.core.schema import require_table
from pipeline.core.tables.events import EVENTS
from pipeline.core.tables.slowed import SLOWED, WHATIF_MARKS
from pipeline.jobs.whatif import WhatifSettings, replay_other_marks
from pipeline.replay.grid import Grid
from pipeline.replay.marks import replayed
from pipeline.report.gather import gather
from pipeline.store.sinks import read_table, write_table
from pipeline.transforms.slowed import slowed
from pipeline.usage.batch import make_usage
from pipeline.usage.settings import UsageSettings
from tests.support.pipeline.usage_events import SECOND_US, event, frame

TOPIC = "persistent://t/n/orders"


def decision(second: float, **fields: Any) -> dict[str, Any]:
    """Make the event of a decision, as the proxy does: of no client, without memory, at its second after noon."""
    nobody = {"kind": "throttle", "schema_version": 2, "principal": None, "client_id": None, "client_version": None}
    return event(round(second * SECOND_US), **nobody, tenant="", namespace="", throttle_ratio_permille=850) | fields


def connections(second: float, action: str, number: int, **fields: Any) -> dict[str, Any]:
    said = {"throttle_by": "threshold", "throttle_action": action, "throttle_connections": number}
    return decision(second, **said) | fields


def rate(second: float, action: str, allowed: int | None, pressure: int = 1000, **fields: Any) -> dict[str, Any]:
    said = {"throttle_by": "adaptive", "throttle_action": action, "throttle_topic": TOPIC}
    rates = {"natural_bytes_per_second": 1000, "allowed_bytes_per_second": allowed}
    return decision(second, **said, **rates, throttle_pressure_permille=pressure) | fields


def found(spark: SparkSession, *events: dict[str, Any]) -> list[dict[str, Any]]:
    table = slowed(frame(spark, events))
    require_table(table, SLOWED)
    return [row.asDict() for row in table.orderBy("hour_start", "throttle", "observed", "reason").collect()]


def test_a_topic_is_slowed_from_rate_to_rate_by_hour_and_reason(spark: SparkSession) -> None:
    rows = found(
        spark,
        rate(3590, "activate", 750),
        rate(3595, "adjust", 500, pressure=400),
        # Memory is at its low mark, so that this pressure is of the backlog; then it is not known.
        rate(3610, "adjust", 300, pressure=200, throttle_ratio_permille=700),
        rate(3612, "adjust", 200, pressure=100, throttle_ratio_permille=None),
        rate(3620, "deactivate", None, pressure=0),
        rate(3630, "would_activate", 750),
        event(3640 * SECOND_US),
    )
    told = [
        (str(row["hour_start"])[11:13], row["reason"], row["observed"], row["seconds"], row["decisions"])
        for row in rows
    ]
    assert told == [
        ("12", "memory", False, 10.0, 2),
        ("13", "backlog", False, 10.0, 2),
        ("13", "memory", False, 10.0, 0),
        ("13", "memory", True, 10.0, 1),
    ]
    assert [row["allowed_bytes_per_second"] for row in rows] == [625.0, 220.0, 500.0, 750.0]
    assert [row["max_pressure_permille"] for row in rows] == [1000, 200, 400, 1000]
    assert {(row["tenant"], row["namespace"], row["topic"]) for row in rows} == {("t", "t/n", TOPIC)}
    assert {row["natural_bytes_per_second"] for row in rows} == {1000.0}


def test_paused_connections_are_added_up_until_they_are_released(spark: SparkSession) -> None:
    (row,) = found(
        spark,
        connections(0, "pause", 10),
        connections(1, "pause", 2),
        connections(4, "resume", 8),
        connections(5, "resume", 3),
        # One has ended while it was paused: an hour later it is no longer waited for.
        connections(1000, "pause", 1),
        connections(1002, "resume", 0),
        event(2000 * SECOND_US),
    )
    # 10 for a second, 12 for three, 4 for one; then 1 for two.
    assert (row["seconds"], row["most_connections"], row["decisions"]) == (10 + 36 + 4 + 2, 12, 4)
    assert (row["throttle"], row["reason"], row["topic"], row["namespace"]) == ("threshold", "memory", None, None)
    assert (row["max_ratio_permille"], row["max_pressure_permille"]) == (850, None)


def test_pauses_end_with_the_start_of_the_proxy_that_made_them(spark: SparkSession) -> None:
    rows = found(
        spark,
        connections(0, "pause", 5, boot_id="old"),
        event(3 * SECOND_US, boot_id="old"),
        connections(10, "resume", 5, boot_id="new"),
        connections(20, "would_pause", 7, boot_id="new"),
        connections(24, "would_resume", 0, boot_id="new"),
    )
    assert [(row["observed"], row["seconds"], row["most_connections"]) for row in rows] == [
        (False, 15.0, 5),
        (True, 28.0, 7),
    ]


def test_events_of_version_3_say_why_and_how_many_are_paused(spark: SparkSession) -> None:
    rows = found(
        spark,
        rate(0, "activate", 750, throttle_reasons=6),
        # Memory of brokers is in no ratio of the proxy: before version 3 this was called backlog.
        rate(10, "adjust", 500, pressure=900, throttle_reasons=2, throttle_ratio_permille=100),
        rate(20, "adjust", 900, pressure=0, throttle_reasons=0),
        rate(30, "release", None, pressure=0, throttle_reasons=0),
        connections(0, "pause", 10, throttle_reasons=3, throttle_paused=10),
        # Two of those that were paused have ended.
        connections(5, "resume", 4, throttle_reasons=3, throttle_paused=4),
        connections(7, "resume", 4, throttle_reasons=0, throttle_paused=0),
        decision(40, throttle_by="adaptive", throttle_action="forget", throttle_forgotten=3),
        decision(41, throttle_by="adaptive", throttle_action="forget", throttle_forgotten=4),
    )
    told = [(row["throttle"], row["reason"], row["seconds"], row["forgotten_topics"]) for row in rows]
    assert told == [
        ("adaptive", "brokers", 10.0, None),
        ("adaptive", "brokers and backlog", 10.0, None),
        ("adaptive", "forgotten", 0.0, 7),
        ("adaptive", "recovery", 10.0, None),
        ("threshold", "memory and brokers", 10 * 5 + 4 * 2, None),
    ]


def test_other_marks_replay_each_start_of_each_proxy(spark: SparkSession) -> None:
    events = [
        connections(0, "pause", 1),
        # The same second says one ratio: the last.
        rate(0.5, "activate", 750),
        connections(30, "resume", 1, throttle_ratio_permille=600),
        connections(0, "pause", 1, proxy_id="p2", throttle_ratio_permille=775),
        event(40 * SECOND_US),
    ]
    table = replayed(frame(spark, events), [Marks(0.85, 0.7), Marks(0.95, 0.9)])
    require_table(table, WHATIF_MARKS)
    rows = {(row["proxy_id"], row["high"], str(row["minute"])[14:16]): row for row in table.collect()}
    first = rows["p1", 0.85, "00"]
    assert (first["seconds"], first["pressed_seconds"], first["paused_seconds"]) == (60, 30, 30)
    assert first["ratio"] == pytest.approx((30 * 0.85 + 30 * 0.6) / 60)
    assert (first["max_pressure"], first["least_allowed_share"]) == (pytest.approx(1.0), pytest.approx(0.1))
    second = rows["p2", 0.85, "00"]
    assert (second["pressed_seconds"], second["paused_seconds"]) == (60, 0)
    assert second["least_allowed_share"] == pytest.approx(0.55)
    assert rows["p1", 0.95, "00"]["allowed_share"] == 1.0
    # Memory holds for a minute after the last event, no longer.
    assert rows["p1", 0.85, "01"]["seconds"] == 30


def test_jobs_write_who_was_slowed_for_the_page_though_nobody_asked_for_lists(
    spark: SparkSession, tmp_path: Path
) -> None:
    common = CommonSettings(str(tmp_path / "out"), "parquet", None, {})
    events = [rate(0, "activate", 500), rate(30, "deactivate", None, 0), connections(40, "pause", 3)]
    events.append(decision(44, throttle_by="adaptive", throttle_action="forget", throttle_forgotten=3))
    write_table(spark, common, EVENTS, frame(spark, [*events, connections(45, "resume", 3)]))
    assert make_usage(spark, UsageSettings(common)).requests == 0
    said: list[str] = []
    settings = WhatifSettings(common, Grid({}), marks=(Marks(0.9, 0.8),))
    replay_other_marks(spark, read_table(spark, common, EVENTS), settings, said.append)
    facts = gather(spark, common)
    assert facts.slowed is not None
    assert facts.overview is not None
    assert (facts.overview.requests, facts.overview.watch_frames, facts.overview.namespaces) == (0, 0, 0)
    assert facts.slowed.topics[["topic", "seconds", "reasons"]].to_numpy().tolist() == [[TOPIC, 30.0, "memory"]]
    assert facts.slowed.hours[["throttle", "seconds"]].to_numpy().tolist() == [["adaptive", 30.0], ["threshold", 15.0]]
    assert (facts.slowed.topic_count, facts.slowed.forgotten_count) == (1, 3)
    assert facts.marks["pressed_seconds"].sum() == 105
    assert said == ["pairs of marks replayed: 1; 2 rows in the table whatif_marks"]
    replay_other_marks(spark, read_table(spark, common, EVENTS), WhatifSettings(common, Grid({})), said.append)
    assert gather(spark, common).marks.empty
