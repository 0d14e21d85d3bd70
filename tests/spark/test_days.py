"""The jobs over days: what they make of some days is what they would have made of all, and other days stay."""

import random
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.periods import ALWAYS, Period
from pipeline.core.tables import Table
from pipeline.core.tables.events import EVENTS
from pipeline.core.tables.slowed import SLOWED
from pipeline.core.tables.storms import ARRIVALS, STORM_MEMBERS, STORMS
from pipeline.core.tables.usage import SHARING, TOP_COSTS, USAGE, WAITS
from pipeline.jobs.storms import StormSettings, StormSummary, find_storms
from pipeline.jobs.usage import UsageSettings, UsageSummary, make_usage
from pipeline.store.tables import append, read_table
from pipeline.transforms.storms import BurstRule
from tests.support.pipeline.tables import assert_follows
from tests.support.pipeline.usage_events import NOON_US, SECOND_US, event, frame

DAY_US = 86_400 * SECOND_US
MIDNIGHT_US = DAY_US // 2
MADE = (USAGE, WAITS, SHARING, TOP_COSTS, SLOWED, ARRIVALS, STORMS, STORM_MEMBERS)
RULE = BurstRule(times=2.0, floor=4, gap_seconds=1)

Event = dict[str, Any]


class Tables:
    """A directory of tables, and the jobs over it."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.common = CommonSettings(str(directory), None, {})

    def add(self, events: Sequence[Event]) -> None:
        append(self.common, EVENTS, frame(self.spark, events))

    def usage(self, period: Period = ALWAYS, window_seconds: int = 3600) -> UsageSummary:
        return make_usage(self.spark, UsageSettings(self.common, window_seconds, period=period))

    def storms(self, period: Period = ALWAYS, rule: BurstRule = RULE) -> StormSummary:
        return find_storms(self.spark, StormSettings(self.common, rule, period=period))

    def rows(self, table: Table, where: str = "true") -> list[str]:
        return sorted(map(str, self._collected(table, where)))

    def rows_of_clusters(self, table: Table) -> dict[str | None, list[str]]:
        found: dict[str | None, list[str]] = {}
        for row in self._collected(table, "true"):
            found.setdefault(row.cluster, []).append(str(row))
        return {cluster: sorted(rows) for cluster, rows in found.items()}

    def _collected(self, table: Table, where: str) -> list[Row]:
        found = read_table(self.spark, self.common, table)
        doubles = {name: F.round(name, 6) for name, kind in found.dtypes if kind == "double"}
        return found.where(where).withColumns(doubles).collect()


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    return Tables(spark, tmp_path / "tables")


def busy(seed: int, day: int, **fields: Any) -> list[Event]:
    """Make events of a day, counted from the first: lists, a storm at its midnight, and a topic slowed over it."""
    chance = random.Random(seed)
    begin = day * DAY_US + chance.randrange(1000)
    lists = [
        event(
            begin + chance.randrange(60 * SECOND_US), namespace=f"t{chance.randrange(3)}/n",
            total_us=chance.randrange(99), heap_wait_us=chance.randrange(9),
            heap_byte_us=chance.randrange(10**9), group_size=chance.randrange(1, 4),
            broker=f"b{chance.randrange(2)}:6650",
        )
        for _ in range(20)
    ]  # fmt: skip
    storm = [event(begin + MIDNIGHT_US - SECOND_US + n * 200_000, total_us=n) for n in range(10)]
    nobody = {"kind": "throttle", "principal": None, "client_id": None, "client_version": None, "namespace": ""}
    topic = nobody | {"throttle_by": "adaptive", "throttle_topic": f"persistent://t/n/{chance.randrange(2)}"}
    slowed = [
        event(begin + MIDNIGHT_US + second * SECOND_US, throttle_action=action, throttle_reasons=1, **topic)
        for second, action in ((-9000, "activate"), (-100, "adjust"), (7000, "deactivate"))
    ]
    return [each | fields for each in (*lists, *storm, *slowed)]


def test_nights_of_changed_days_come_to_what_one_run_over_all_does_and_to_that_for_each_cluster(
    tables: Tables, spark: SparkSession, tmp_path: Path
) -> None:
    mine = [*busy(1, 0, cluster="one"), *busy(2, 1, cluster="one"), *busy(3, 3, cluster="one")]
    late = [event(DAY_US + (3000 + n) * SECOND_US, cluster="one") for n in range(5000)]
    others = [*busy(4, 0, cluster="two", boot_id="b2"), *busy(5, 0, cluster=None, boot_id="b3")]
    between = (date(2026, 1, 2), date(2026, 1, 3))
    nights = [
        [*others, *(each for each in mine if each["date"] not in between)],
        # So many come late that silence is no longer usual, also on the days after.
        [*late, *(each for each in mine if each["date"] in between)],
    ]
    made = []
    for night in nights:
        tables.add(night)
        made.append(tables.usage().days)
        tables.storms()
    assert made == [4, 2]
    alone = Tables(spark, tmp_path / "alone")
    alone.add([*mine, *late])
    alone.usage()
    alone.storms()
    for table in MADE:
        found = tables.rows_of_clusters(table)
        assert found.keys() == {"one", "two", None}
        assert found["one"] == alone.rows(table)
        assert_follows(read_table(spark, tables.common, table), table)
    assert (str(tables.usage()), str(tables.storms())) == ("nothing new", "nothing new")


def test_a_part_of_the_days_leaves_the_others_as_they_were(tables: Tables) -> None:
    for day in range(2):
        tables.add(busy(day, 3 * day))
    tables.usage()
    tables.storms()
    late = Period(since_us=NOON_US + 3 * DAY_US)
    older = {table: tables.rows(table, "date < '2026-01-04'") for table in MADE}
    newer = tables.rows(USAGE, "date >= '2026-01-04'")
    tables.add([event(3 * DAY_US + n, namespace="late/n") for n in range(20)])
    assert tables.usage(late).days == 1
    tables.storms(late)
    assert {table: tables.rows(table, "date < '2026-01-04'") for table in MADE} == older
    assert all(older.values())
    assert len(tables.rows(USAGE, "date >= '2026-01-04'")) == len(newer) + 1


def test_the_usual_rate_is_that_of_all_days_whatever_part_is_looked_at(tables: Tables, spark: SparkSession) -> None:
    # By themselves, five a second would be what is usual on the later day.
    events = [event(n * SECOND_US) for n in range(700)]
    events += [event(3 * DAY_US + n * SECOND_US + each) for n in range(4) for each in range(5)]
    tables.add(events)
    tables.storms(Period(since_us=NOON_US + 3 * DAY_US))
    (storm,) = read_table(spark, tables.common, STORMS).collect()
    assert (storm.requests, storm.usual_rate) == (20, 1.0)


def test_other_options_make_the_days_again_and_a_job_that_is_killed_leaves_none_that_looks_made(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    tables.add([event(n * 60 * SECOND_US) for n in range(4)])
    assert [tables.usage().days for _ in range(2)] == [1, 0]
    whole = tables.rows(USAGE)
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.transforms.usage.sharing", killed)
        with pytest.raises(KeyboardInterrupt):
            tables.usage(window_seconds=60)
    assert tables.usage().days == 1
    assert tables.rows(USAGE) == whole
    assert tables.usage(window_seconds=60).days == 1
    assert len(tables.rows(USAGE)) == 4


def test_other_options_change_no_day_that_nobody_asked_for(tables: Tables) -> None:
    for day in range(2):
        tables.add(busy(day, day))
    tables.storms()
    whole, others = tables.rows(STORMS), tables.rows(STORMS, "date <> '2026-01-02'")
    assert 0 < len(others) < len(whole)
    # A storm of the day before may go on into this day, and the usual rate of the day after hangs on it.
    midnight = NOON_US + DAY_US // 2
    tables.storms(Period(midnight, midnight + DAY_US), BurstRule(times=2.0, floor=1_000_000, gap_seconds=1))
    assert tables.rows(STORMS) == others
    tables.storms()
    assert tables.rows(STORMS) == whole


def test_jobs_without_events_say_so_and_write_nothing(tables: Tables) -> None:
    later = Period(since_us=NOON_US + DAY_US)
    with pytest.raises(PipelineError, match="found no table `events`") as raised:
        tables.usage()
    assert raised.value.code == ExitCode.USAGE
    tables.add([event(0)])
    for job in (tables.usage, tables.storms):
        with pytest.raises(PipelineError, match="found no event from 2026-01-02") as raised:
            job(later)
        assert raised.value.code == ExitCode.USAGE
    assert [path.name for path in Path(tables.common.out).iterdir()] == [EVENTS.name]
