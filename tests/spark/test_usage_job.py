import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.periods import Period
from pipeline.core.tables import Table
from pipeline.core.tables.events import EVENTS
from pipeline.core.tables.storms import STORMS
from pipeline.core.tables.usage import SHARING, TOP_COSTS, USAGE, WAITS
from pipeline.jobs.storms import StormSettings, find_storms
from pipeline.store.sinks import open_store, read_table
from pipeline.transforms.usage import add_usage, add_waits, usage, waits
from pipeline.usage.batch import make_usage
from pipeline.usage.settings import StreamSettings, UsageSettings, UsageSummary
from pipeline.usage.stream import follow_usage
from pipeline.usage.tables import read_usage, read_waits
from tests.support.pipeline.usage_events import NOON_US, SECOND_US, event, frame

Rows = list[tuple[object, ...]]
ANEW = "`sharing`, `top_costs` and `slowed` made anew"


def add_events(spark: SparkSession, common: CommonSettings, *numbers: int) -> None:
    """Add events of these seconds, as an ingest would: a change each."""
    store = open_store(spark, common)
    events = [event(n * SECOND_US, heap_byte_us=1000 * n, total_us=n, group_size=2) for n in numbers]
    rows = store.stage(EVENTS, frame(spark, events))
    with store.exclusive() as opened:
        opened.add({"events": rows})
    rows.discard()


def rows_of(found: DataFrame) -> Rows:
    rows = found.drop("part").collect()
    # Parts are added up in any order.
    return sorted((tuple(round(v, 9) if isinstance(v, float) else v for v in row) for row in rows), key=str)


@pytest.fixture
def plain(tmp_path: Path) -> CommonSettings:
    return CommonSettings(str(tmp_path / "out"), "parquet", None, {})


@pytest.fixture
def common(plain: CommonSettings) -> CommonSettings:
    """Give tables that a stream can follow."""
    return replace(plain, format="delta")


@pytest.fixture
def follow(spark: SparkSession, common: CommonSettings) -> Callable[[], list[str]]:
    """Take what has come since the last time; gives what was said."""

    def once() -> list[str]:
        said: list[str] = []
        stream = StreamSettings(f"{common.out}/_checkpoints/usage")
        follow_usage(spark, UsageSettings(common), stream, said.append)
        return said

    return once


@pytest.fixture
def parts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what follows from the parts, where a test does not look: three more tables for each run of a stream."""
    nothing = UsageSummary(0, 0, 0, 0, 0.0)
    monkeypatch.setattr("pipeline.usage.stream.refresh", lambda spark, settings: nothing)


def test_stream_comes_to_what_a_batch_does(
    spark: SparkSession, common: CommonSettings, follow: Callable[[], list[str]]
) -> None:
    add_events(spark, common, 1, 2, 61)
    assert follow() == ["batch 0"]
    # Rows that a compaction moved are not new; what came late is.
    assert open_store(spark, common).merge(EVENTS, 1 << 20)[1] == 1
    add_events(spark, common, 4, 121)
    assert follow() == ["batch 1"]
    events = read_table(spark, common, EVENTS)
    assert rows_of(read_usage(spark, common)) == rows_of(usage(events, 60))
    assert rows_of(read_waits(spark, common)) == rows_of(waits(events, 60))
    assert [row.requests for row in read_table(spark, common, SHARING).collect()] == [5]
    with pytest.raises(PipelineError, match="that a stream adds to, expected to go on with --stream"):
        make_usage(spark, UsageSettings(common))


def test_stream_that_is_told_to_stop_ends_after_its_batch_and_makes_what_follows(
    spark: SparkSession, common: CommonSettings, follow: Callable[[], list[str]]
) -> None:
    add_events(spark, common, 1)
    add_events(spark, common, 2)
    stop = Event()
    stream = StreamSettings(f"{common.out}/_checkpoints/usage", trigger_us=3_600_000_000, max_files=1)
    assert follow_usage(spark, UsageSettings(common), stream, lambda text: stop.set(), stop).requests == 1
    assert [row.requests for row in read_table(spark, common, SHARING).collect()] == [1]
    assert read_table(spark, common, TOP_COSTS).count() > 0
    # The first may come again, if Spark was ended before it had noted its end.
    assert follow()[-1] == "batch 1"
    assert [row.requests for row in read_table(spark, common, SHARING).collect()] == [2]


def test_what_follows_is_made_anew_while_the_stream_goes_on(
    spark: SparkSession, common: CommonSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.running.pace.REST_TIMES", 0)
    add_events(spark, common, 1)
    stop, said = Event(), list[str]()
    seen: list[int] = []

    def note(text: str) -> None:
        said.append(text)
        if not text.startswith("batch"):
            # In the tables of the moment, the stream still going on.
            seen.extend(row.requests for row in read_table(spark, common, SHARING).collect())
            if len(seen) == 1:
                add_events(spark, common, 2, 3)
        if sum(seen) == 4:
            stop.set()

    stream = StreamSettings(f"{common.out}/_checkpoints/usage", trigger_us=50_000, refresh_us=1_000)
    assert follow_usage(spark, UsageSettings(common), stream, note, stop).requests == 3
    assert said == ["batch 0", ANEW, "batch 1", ANEW]
    assert seen == [1, 3]


def test_stream_waits_for_the_table_of_events(spark: SparkSession, common: CommonSettings) -> None:
    stop, said = Event(), list[str]()

    def note(text: str) -> None:
        said.append(text)
        if text.startswith("waits"):
            add_events(spark, common, 1)
        elif text == "batch 0":
            stop.set()

    stream = StreamSettings(f"{common.out}/_checkpoints/usage", trigger_us=50_000)
    assert follow_usage(spark, UsageSettings(common), stream, note, stop).requests == 1
    assert said[:2] == ["waits for the table `events`", "batch 0"]


@pytest.mark.usefixtures("parts_alone")
def test_parts_of_days_that_are_over_are_added_up_and_the_stream_goes_on(
    spark: SparkSession, common: CommonSettings, follow: Callable[[], list[str]]
) -> None:
    day = 86_400
    for seconds in ((1, 2), (2, 61, day + 1), (day + 2,)):
        add_events(spark, common, *seconds)
        follow()
    before = [rows_of(read(spark, common)) for read in (read_usage, read_waits)]
    assert add_up(spark, common) == [1, 1]
    assert [rows_of(read(spark, common)) for read in (read_usage, read_waits)] == before
    # One part of the day that is over, with a row for each key; those of the other day as they were.
    for table, added in ((USAGE, read_usage), (WAITS, read_waits)):
        assert parts(spark, common, table) == {date(2026, 1, 1): [2], date(2026, 1, 2): [2, 3]}
        rows = read_table(spark, common, table).where("date = '2026-01-01'").count()
        assert rows == added(spark, common).where("date = '2026-01-01'").count()
    assert add_up(spark, common) == [0, 0]
    # A batch that comes again, as after a kill, adds nothing; a new one does, and is added up the next time.
    commits = Path(common.out, "_checkpoints", "usage", "commits")
    for name in ("2", ".2.crc"):
        Path(commits, name).unlink()
    add_events(spark, common, 4)
    assert follow() == ["batch 2", "batch 3"]
    assert parts(spark, common, USAGE) == {date(2026, 1, 1): [2, 4], date(2026, 1, 2): [2, 3]}
    assert add_up(spark, common) == [1, 1]
    events = read_table(spark, common, EVENTS)
    assert rows_of(read_usage(spark, common)) == rows_of(usage(events, 60))
    assert rows_of(read_waits(spark, common)) == rows_of(waits(events, 60))


def add_up(spark: SparkSession, common: CommonSettings) -> list[int]:
    """Add up the parts of days before the second; gives their number in both tables."""
    store = open_store(spark, common)
    return [store.add_up(table, date(2026, 1, 2), added) for table, added in ((USAGE, add_usage), (WAITS, add_waits))]


def parts(spark: SparkSession, common: CommonSettings, table: Table) -> dict[date, list[int]]:
    """Give the parts of each day of a table."""
    found: dict[date, set[int]] = {}
    for row in read_table(spark, common, table).select("date", "part").collect():
        found.setdefault(row.date, set()).add(row.part)
    return {day: sorted(numbers) for day, numbers in sorted(found.items())}


def test_stream_does_not_add_to_what_a_batch_made(
    spark: SparkSession, common: CommonSettings, follow: Callable[[], list[str]]
) -> None:
    add_events(spark, common, 1)
    for _ in range(2):
        make_usage(spark, UsageSettings(common))
    assert read_table(spark, common, USAGE).count() == 1
    with pytest.raises(PipelineError, match="was not made by a stream"):
        follow()


def test_jobs_without_events_say_so_and_change_nothing(spark: SparkSession, plain: CommonSettings) -> None:
    with pytest.raises(PipelineError, match="found no table `events`") as raised:
        make_usage(spark, UsageSettings(plain))
    assert raised.value.code == ExitCode.USAGE
    add_events(spark, plain, 1)
    make_usage(spark, UsageSettings(plain))
    later = Period(since_us=NOON_US + 2 * SECOND_US)
    with pytest.raises(PipelineError, match="found no event from 2026-01-01T12:00:02") as raised:
        make_usage(spark, UsageSettings(plain, period=later))
    assert raised.value.code == ExitCode.USAGE
    with pytest.raises(PipelineError, match="found no topic list from"):
        find_storms(spark, StormSettings(plain, period=later))
    assert read_table(spark, plain, USAGE).count() == 1
    assert open_store(spark, plain).read(STORMS) is None


@pytest.mark.usefixtures("parts_alone")
def test_stream_without_its_checkpoint_or_with_anothers_is_refused(
    spark: SparkSession, common: CommonSettings, follow: Callable[[], list[str]]
) -> None:
    add_events(spark, common, 1)
    follow()
    checkpoint = Path(common.out, "_checkpoints", "usage")
    checkpoint.rename(checkpoint.with_name("elsewhere"))
    with pytest.raises(
        PipelineError, match=r"got none at the checkpoint .*, expected the one that the tables were made"
    ):
        follow()
    checkpoint.with_name("elsewhere").rename(checkpoint)
    for name in ("usage", "waits"):
        shutil.rmtree(Path(common.out, name))
    with pytest.raises(PipelineError, match=r"got one at the checkpoint .*, expected none; to begin anew delete"):
        follow()
