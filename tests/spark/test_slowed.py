"""Who was slowed, from events of the kind throttle; answers are worked out here by hand."""

from typing import Any

from pyspark.sql import SparkSession

from pipeline.core.schema import require_table
from pipeline.core.tables.slowed import SLOWED
from pipeline.transforms.slowed import slowed
from tests.support.pipeline.usage_events import SECOND_US, event, frame

TOPIC = "persistent://t/n/orders"
MEMORY, BROKERS, BACKLOG = 1, 2, 4
MIDNIGHT = 12 * 3600


def decision(second: float, **fields: Any) -> dict[str, Any]:
    """Make the event of a decision, as the proxy does: of no client, without memory, at its second after noon."""
    nobody = {"kind": "throttle", "principal": None, "client_id": None, "client_version": None, "namespace": ""}
    said = {"throttle_ratio_permille": 850, "throttle_reasons": MEMORY}
    return event(round(second * SECOND_US), **nobody, tenant="") | said | fields


def connections(second: float, action: str, number: int, paused: int, **fields: Any) -> dict[str, Any]:
    said = {"throttle_by": "threshold", "throttle_action": action, "throttle_connections": number}
    return decision(second, **said, throttle_paused=paused) | fields


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
        rate(3610, "adjust", 300, pressure=200, throttle_reasons=BACKLOG),
        rate(3612, "adjust", 200, pressure=100, throttle_reasons=BACKLOG),
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
        connections(0, "pause", 10, 10),
        connections(1, "pause", 2, 12),
        # Four of those that were paused have ended.
        connections(4, "resume", 4, 4),
        connections(5, "resume", 4, 0),
        connections(1000, "pause", 1, 1),
        connections(1002, "resume", 1, 0),
        event(2000 * SECOND_US),
    )
    # 10 for a second, 12 for three, 4 for one; then 1 for two.
    assert (row["seconds"], row["most_connections"], row["decisions"]) == (10 + 36 + 4 + 2, 12, 4)
    assert (row["throttle"], row["reason"], row["topic"], row["namespace"]) == ("threshold", "memory", None, None)
    assert (row["max_ratio_permille"], row["max_pressure_permille"]) == (850, None)


def test_what_is_slowed_ends_with_the_start_of_the_proxy_that_slowed_it(spark: SparkSession) -> None:
    rows = found(
        spark,
        connections(0, "pause", 5, 5, boot_id="old"),
        rate(1, "activate", 500, boot_id="old"),
        event(3 * SECOND_US, boot_id="old"),
        connections(10, "resume", 5, 0, boot_id="new"),
        connections(20, "would_pause", 7, 7, boot_id="new"),
        connections(24, "would_resume", 7, 0, boot_id="new"),
    )
    told = [(row["throttle"], row["observed"], row["seconds"]) for row in rows]
    assert told == [("adaptive", False, 2.0), ("threshold", False, 15.0), ("threshold", True, 28.0)]


def test_what_presses_is_named_and_forgotten_topics_are_counted(spark: SparkSession) -> None:
    rows = found(
        spark,
        rate(0, "activate", 750, throttle_reasons=BROKERS | BACKLOG),
        rate(10, "adjust", 500, pressure=900, throttle_reasons=BROKERS),
        rate(20, "adjust", 900, pressure=0, throttle_reasons=0),
        rate(30, "release", None, pressure=0, throttle_reasons=0),
        connections(0, "pause", 10, 10, throttle_reasons=MEMORY | BROKERS),
        connections(7, "resume", 10, 0, throttle_reasons=0),
        decision(40, throttle_by="adaptive", throttle_action="forget", throttle_forgotten=3),
        decision(41, throttle_by="adaptive", throttle_action="forget", throttle_forgotten=4),
    )
    told = [(row["throttle"], row["reason"], row["seconds"], row["forgotten_topics"]) for row in rows]
    assert told == [
        ("adaptive", "brokers", 10.0, None),
        ("adaptive", "brokers and backlog", 10.0, None),
        ("adaptive", "forgotten", 0.0, 7),
        ("adaptive", "recovery", 10.0, None),
        ("threshold", "memory and brokers", 70.0, None),
    ]


def test_what_is_slowed_over_midnight_is_of_both_days(spark: SparkSession) -> None:
    rows = found(
        spark,
        rate(MIDNIGHT - 10, "activate", 500),
        rate(MIDNIGHT + 20, "deactivate", None),
        # Nothing is heard of this one until the day after the next.
        rate(MIDNIGHT - 5, "activate", 500, throttle_topic="persistent://t/n/silent"),
        event((MIDNIGHT + 30) * SECOND_US),
        event((MIDNIGHT + 100_000) * SECOND_US),
    )
    told = sorted((str(row["date"]), row["topic"].rpartition("/")[2], row["seconds"]) for row in rows)
    assert told == [
        ("2026-01-01", "orders", 10.0), ("2026-01-01", "silent", 5.0),
        ("2026-01-02", "orders", 20.0), ("2026-01-02", "silent", 30.0),
    ]  # fmt: skip
