"""Who costs how much, over tables: batches, and a stream that adds to what it wrote before."""

import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import CommonSettings, TableFormat
from pipeline.core.periods import ALWAYS, Period
from pipeline.core.tables import Table
from pipeline.core.tables.events import EVENTS
from pipeline.core.tables.storms import STORMS
from pipeline.core.tables.usage import SHARING, USAGE, WAITS
from pipeline.jobs.storms import StormSettings, find_storms
from pipeline.store.sinks import open_store, read_table
from pipeline.transforms.usage import add_usage, add_waits, usage, waits
from pipeline.usage.batch import make_usage
from pipeline.usage.settings import StreamSettings, UsageSettings, UsageSummary
from pipeline.usage.stream import follow_usage
from tests.support.pipeline.usage_events import NOON_US, SECOND_US, event, frame

Say = Callable[[str], None]
ANEW = "`sharing`, `top_costs` and `slowed` made anew"


class Tables:
    """A store, and the job over it."""

    def __init__(self, spark: SparkSession, directory: Path, table_format: TableFormat = "delta") -> None:
        self.spark = spark
        self.common = CommonSettings(str(directory / "out"), table_format, None, {})
        self.checkpoint = Path(self.common.out, "_checkpoints", "usage")
        self.store = open_store(spark, self.common)

    def add(self, *seconds: int) -> None:
        """Add events of these seconds, as an ingest would: a change each."""
        events = [event(n * SECOND_US, heap_byte_us=1000 * n, total_us=n, group_size=2) for n in seconds]
        rows = self.store.stage(EVENTS, frame(self.spark, events))
        with self.store.exclusive() as opened:
            opened.add({"events": rows})
        rows.discard()

    def batch(self, period: Period = ALWAYS) -> UsageSummary:
        return make_usage(self.spark, UsageSettings(self.common, period=period))

    def follow(self) -> list[str]:
        """Take what has come since the last time; gives what was said."""
        said: list[str] = []
        self.stream(said.append)
        return said

    def stream(self, note: Say, stop: Event | None = None, **settings: int) -> UsageSummary:
        stream = StreamSettings(str(self.checkpoint), **settings)
        return follow_usage(self.spark, UsageSettings(self.common), stream, note, stop)

    def read(self, table: Table) -> DataFrame:
        return read_table(self.spark, self.common, table)

    def shared(self) -> list[int]:
        return [row.requests for row in self.read(SHARING).collect()]

    def parts(self, table: Table) -> dict[date, list[int]]:
        """Give the parts of each day of a table."""
        found: dict[date, set[int]] = {}
        for row in self.read(table).select("date", "part").collect():
            found.setdefault(row.date, set()).add(row.part)
        return {day: sorted(numbers) for day, numbers in sorted(found.items())}

    def add_up(self) -> list[int]:
        """Add up the parts of days before the second; gives their number in both tables."""
        added = ((USAGE, add_usage), (WAITS, add_waits))
        return [self.store.add_up(table, date(2026, 1, 2), add) for table, add in added]

    def must_be_those_of_a_batch(self) -> None:
        events = self.read(EVENTS)
        for table, add, expected in ((USAGE, add_usage, usage), (WAITS, add_waits, waits)):
            assert rows_of(add(self.read(table))) == rows_of(expected(events, 60))


def rows_of(found: DataFrame) -> list[tuple[object, ...]]:
    rows = found.drop("part").collect()
    # Parts are added up in any order.
    return sorted((tuple(round(v, 9) if isinstance(v, float) else v for v in row) for row in rows), key=str)


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    return Tables(spark, tmp_path)


@pytest.fixture
def parts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what follows from the parts, where a test does not look: three more tables for each run of a stream."""
    nothing = UsageSummary(0, 0, 0, 0, 0.0)
    monkeypatch.setattr("pipeline.usage.stream.refresh", lambda spark, settings: nothing)


def test_stream_comes_to_what_a_batch_does(tables: Tables) -> None:
    tables.add(1, 2, 61)
    assert tables.follow() == ["batch 0"]
    # Rows that a compaction moved are not new; what came late is.
    assert tables.store.merge(EVENTS, 1 << 20)[1] == 1
    tables.add(4, 121)
    assert tables.follow() == ["batch 1"]
    tables.must_be_those_of_a_batch()
    assert tables.shared() == [5]
    with pytest.raises(PipelineError, match="that a stream adds to, expected to go on with --stream"):
        tables.batch()


def test_what_follows_is_made_anew_while_the_stream_goes_on(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.running.pace.REST_TIMES", 0)
    tables.add(1)
    stop, said, seen = Event(), list[str](), list[int]()

    def note(text: str) -> None:
        said.append(text)
        if not text.startswith("batch"):
            # In the tables of the moment, the stream still going on.
            seen.extend(tables.shared())
            if len(seen) == 1:
                tables.add(2, 3)
        if sum(seen) == 4:
            stop.set()

    assert tables.stream(note, stop, trigger_us=50_000, refresh_us=1_000).requests == 3
    assert said == ["batch 0", ANEW, "batch 1", ANEW]
    assert seen == [1, 3]


def test_stream_waits_for_the_table_of_events(tables: Tables) -> None:
    stop, said = Event(), list[str]()

    def note(text: str) -> None:
        said.append(text)
        if text.startswith("waits"):
            tables.add(1)
        elif text == "batch 0":
            stop.set()

    assert tables.stream(note, stop, trigger_us=50_000).requests == 1
    assert said[:2] == ["waits for the table `events`", "batch 0"]


@pytest.mark.usefixtures("parts_alone")
def test_parts_of_days_that_are_over_are_added_up_and_the_stream_goes_on(tables: Tables) -> None:
    day, first, second = 86_400, date(2026, 1, 1), date(2026, 1, 2)
    for seconds in ((1, 2), (2, 61, day + 1), (day + 2,)):
        tables.add(*seconds)
        tables.follow()
    assert tables.add_up() == [1, 1]
    tables.must_be_those_of_a_batch()
    # One part of the day that is over, with a row for each key; those of the other day as they were.
    for table, add in ((USAGE, add_usage), (WAITS, add_waits)):
        assert tables.parts(table) == {first: [2], second: [2, 3]}
        both = (tables.read(table), add(tables.read(table)))
        assert len({rows.where("date = '2026-01-01'").count() for rows in both}) == 1
    assert tables.add_up() == [0, 0]
    # A batch that comes again, as after a kill, adds nothing; a new one does, and is added up the next time.
    for name in ("2", ".2.crc"):
        (tables.checkpoint / "commits" / name).unlink()
    tables.add(4)
    assert tables.follow() == ["batch 2", "batch 3"]
    assert tables.parts(USAGE) == {first: [2, 4], second: [2, 3]}
    assert tables.add_up() == [1, 1]
    tables.must_be_those_of_a_batch()


def test_stream_does_not_add_to_what_a_batch_made(tables: Tables) -> None:
    tables.add(1)
    for _ in range(2):
        tables.batch()
    assert tables.read(USAGE).count() == 1
    with pytest.raises(PipelineError, match="was not made by a stream"):
        tables.follow()


def test_jobs_without_events_say_so_and_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, tmp_path, "parquet")
    with pytest.raises(PipelineError, match="found no table `events`") as raised:
        tables.batch()
    assert raised.value.code == ExitCode.USAGE
    tables.add(1)
    tables.batch()
    later = Period(since_us=NOON_US + 2 * SECOND_US)
    with pytest.raises(PipelineError, match="found no event from 2026-01-01T12:00:02") as raised:
        tables.batch(later)
    assert raised.value.code == ExitCode.USAGE
    with pytest.raises(PipelineError, match="found no topic list from"):
        find_storms(spark, StormSettings(tables.common, period=later))
    assert tables.read(USAGE).count() == 1
    assert tables.store.read(STORMS) is None


@pytest.mark.usefixtures("parts_alone")
def test_stream_without_its_checkpoint_or_with_anothers_is_refused(tables: Tables) -> None:
    tables.add(1)
    tables.follow()
    elsewhere = tables.checkpoint.with_name("elsewhere")
    tables.checkpoint.rename(elsewhere)
    with pytest.raises(PipelineError, match=r"got none at the checkpoint .*, expected the one that the tables were"):
        tables.follow()
    elsewhere.rename(tables.checkpoint)
    for name in ("usage", "waits"):
        shutil.rmtree(Path(tables.common.out, name))
    with pytest.raises(PipelineError, match=r"got one at the checkpoint .*, expected none; to begin anew delete"):
        tables.follow()
