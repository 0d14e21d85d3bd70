"""The job `usage`: the table `events`, or a stream of it, into `usage`, `waits`, `sharing`, `top_costs` and `slowed`.

Rule: a batch replaces all five. A stream adds a part to `usage` and to `waits` for each of its batches, in one step and
once however often the batch is run again; what follows from them it replaces now and then and when it ends, and
`slowed`, which it makes of all events: pauses of one batch end in another. The two do not mix in one directory:
whatever is there is either a batch's or a stream's, by a mark that the stream leaves before its first batch. A stream
needs Delta, which says what came to a table since, whatever was merged meanwhile, and takes a batch once.
"""

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final, Literal, get_args
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.marks import ADAPTIVE_MARKS, Marks
from pipeline.core.options import CommonSettings, add_common, common_settings
from pipeline.core.paths import PATTERN_SIGNS, mounted
from pipeline.core.periods import ALWAYS, Period, add_period, given_period, in_period, window_seconds
from pipeline.core.schema import table_schema
from pipeline.core.tables.events import EVENTS
from pipeline.core.tables.slowed import SLOWED
from pipeline.core.tables.table import Table
from pipeline.core.tables.usage import SHARING, TOP_COSTS, USAGE, WAITS
from pipeline.ingest.settings import LEAST_US, micros
from pipeline.running.duck import summed
from pipeline.running.pace import Pace
from pipeline.running.progress import at_work
from pipeline.running.session import cores, heap_bytes, is_local
from pipeline.running.stopping import Batches, set_by_sigterm
from pipeline.store.parquet import STAGING
from pipeline.store.protocol import Batch, Staged, Store
from pipeline.store.sinks import open_store, read_table
from pipeline.transforms import usage as made
from pipeline.transforms.slowed import THROTTLE, slowed

__all__ = [
    "StreamSettings",
    "UsageSettings",
    "UsageSummary",
    "add_arguments",
    "follow_usage",
    "make_usage",
    "read_usage",
    "read_waits",
    "run",
]

STREAM: Final = "usage"
ANEW: Final = "to begin anew delete its `usage`, `waits` and the checkpoint"
OF_STREAM: Final = f"got a table `usage` that a stream adds to, expected to go on with --stream; {ANEW}"
# Each time three tables are written whole, and their files of before stay for a day: 100 times a day is enough.
REFRESH_US: Final = 900_000_000


class StreamOwnsError(PipelineError):
    """A batch was to replace what a stream adds to."""


Engine = Literal["auto", "spark", "duckdb"]


@dataclass(frozen=True, slots=True)
class UsageSettings:
    """How long windows are, how many names `top_costs` has for each question, and the adaptive throttle's marks."""

    common: CommonSettings
    window_seconds: int = 60
    top: int = 20
    period: Period = ALWAYS
    marks: Marks = ADAPTIVE_MARKS
    engine: Engine = "auto"


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Where a stream keeps how far it has come; times are microseconds.

    `trigger_us` None takes what there is and ends; otherwise what follows from `usage` is made anew every `refresh_us`.
    """

    checkpoint: str
    trigger_us: int | None = None
    max_files: int = 200
    refresh_us: int = REFRESH_US


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """The findings for the line at the end of the job."""

    rows: int
    requests: int
    refused: int
    watch_frames: int
    heap_byte_seconds: float

    def __str__(self) -> str:
        return (
            f"{self.requests:,} requests, {self.refused:,} refused, {self.watch_frames:,} watch frames,"
            f" {self.heap_byte_seconds / 2**20:,.1f} MiB*s of heap, in {self.rows:,} rows"
        )


def make_usage(spark: SparkSession, settings: UsageSettings) -> UsageSummary:
    """Make the five tables from all events of the period; raises PipelineError if there are none."""
    store = open_store(spark, settings.common)
    _require_owner(store, settings, stream=False)
    whole = read_table(spark, settings.common, EVENTS)
    events = in_period(whole, settings.period)
    # The tables made of `usage` are small: their jobs fill the gaps between the tasks of `waits`.
    with ExitStack() as staged, ThreadPoolExecutor(1) as beside:
        rows: dict[Table, Staged] = {}

        def stage(table: Table, frame: DataFrame) -> DataFrame:
            rows[table] = store.stage(table, frame)
            staged.callback(rows[table].discard)
            return rows[table].frame

        of_usage, of_waits = _both(spark, staged, whole, settings)
        usage = stage(USAGE, of_usage)
        waits = beside.submit(stage, WAITS, of_waits)
        summary = _summary(usage)
        if stage(SLOWED, _decided(spark, events, settings.marks)).isEmpty() and not summary.rows:
            raise PipelineError(
                f"--out {settings.common.out}: found no event from {settings.period}, expected at least one in `events`"
            )
        stage(SHARING, made.sharing(usage))
        stage(TOP_COSTS, made.top_costs(usage, settings.top))
        waits.result()
        with store.exclusive() as opened:
            # A stream may have begun meanwhile.
            _require_owner(store, settings, stream=False)
            for table, new in rows.items():
                opened.replace(table, new)
    return summary


def _both(
    spark: SparkSession, stack: ExitStack, events: DataFrame, settings: UsageSettings
) -> tuple[DataFrame, DataFrame]:
    """Return `usage` and `waits`: summed by DuckDB where all is on this machine, otherwise by Spark."""
    seconds = settings.window_seconds
    directory = _place_for_duckdb(spark, settings)
    files = [] if directory is None else [unquote(urlsplit(name).path) for name in events.inputFiles()]
    if directory is None or not files:
        chosen = in_period(events, settings.period)
        return made.usage(chosen, seconds), made.waits(chosen, seconds)
    columns = {field.name: field.dataType.simpleString() for field in table_schema(EVENTS)}
    place = directory / STAGING / f"duckdb-{uuid4().hex}"
    queries = made.queries(seconds, settings.period.sql)
    summing = summed(files, columns, queries, place, cores(spark), heap_bytes(spark))
    found = {name: spark.read.parquet(f"file://{path}") for name, path in stack.enter_context(summing).items()}
    return made.usage_of(found["usage"], seconds), made.waits_of(found["waits"], seconds)


def _place_for_duckdb(spark: SparkSession, settings: UsageSettings) -> Path | None:
    """Return the directory of the tables if DuckDB can add up, and may; raises PipelineError if it must and cannot."""
    common = settings.common
    place = mounted(common.out)
    # DuckDB takes each path for a pattern.
    fits = common.format == "parquet" and is_local(spark) and place is not None and not PATTERN_SIGNS.search(str(place))
    if settings.engine == "duckdb" and not fits:
        raise PipelineError(
            f"--engine duckdb: got --format {common.format} at {common.out}, expected Parquet on a mounted directory"
            " without signs of patterns in its name, and a master local[N]"
        )
    return place if fits and settings.engine != "spark" else None


def follow_usage(
    spark: SparkSession,
    settings: UsageSettings,
    stream: StreamSettings,
    note: Callable[[str], None],
    stop: Event | None = None,
) -> UsageSummary:
    """Add up events as they come into the table `events`, until the stream ends, or `stop`; raises PipelineError.

    A stream that was told to stop before it added anything has found nothing, which is no error.
    """
    stop = stop or Event()
    if settings.common.format != "delta":
        raise PipelineError(
            f"--stream: got --format {settings.common.format}, expected delta: a stream of a table needs it"
        )
    store = open_store(spark, settings.common)
    _require_owner(store, settings, stream=True)
    _await_events(store, stream, note, stop)
    if stop.is_set() and store.read(EVENTS) is None:
        return UsageSummary(0, 0, 0, 0, 0.0)
    read_table(spark, settings.common, EVENTS)
    pace = Pace(stream.refresh_us / 1e6)

    def add(events: DataFrame, number: int) -> None:
        add_batch(store, events, settings.window_seconds, number)
        note(f"batch {number}")
        pace.came()

    def make_what_follows() -> None:
        refresh(spark, settings)
        note("`sharing`, `top_costs` and `slowed` made anew")

    batches = Batches(add)
    writer = _triggered(_source(spark, settings.common, stream).writeStream.foreachBatch(batches.take), stream)
    # Not before Spark has taken what it is told: a stream that cannot be has left no note.
    _begin(spark, store, settings, stream)
    if stop.is_set() and _is_empty(store):
        return UsageSummary(0, 0, 0, 0, 0.0)
    query = writer.start()
    try:
        # A stream that only takes what there is makes the other tables at its end.
        batches.follow(query, stop, lambda: None if stream.trigger_us is None else pace.keep(make_what_follows))
    except StreamingQueryException as error:
        raise _explained(error, settings.common) or error from error
    finally:
        query.stop()
    if stop.is_set() and _is_empty(store):
        return UsageSummary(0, 0, 0, 0, 0.0)
    return refresh(spark, settings)


def _begin(spark: SparkSession, store: Store, settings: UsageSettings, stream: StreamSettings) -> None:
    """Create `usage` before a batch comes: a checkpoint without the table would be another's; raises PipelineError.

    The table is marked as the stream's, so that no batch takes it before there is a part in it.
    """
    begun = store.read(USAGE) is not None
    _require_checkpoint(settings, stream, begun=begun, read=_has_parts(store, of_stream=True))
    empty = store.stage(USAGE, spark.createDataFrame([], table_schema(USAGE)))
    try:
        with store.exclusive() as opened:
            _require_owner(store, settings, stream=True)
            if store.read(USAGE) is None:
                opened.replace(USAGE, empty)
            opened.keep_for(USAGE, STREAM)
    finally:
        empty.discard()


def _await_events(store: Store, stream: StreamSettings, note: Callable[[str], None], stop: Event) -> None:
    """Wait for the table `events`, unless the stream takes what there is: ingest may have begun at the same time."""
    if stream.trigger_us is None or store.read(EVENTS) is not None:
        return
    note("waits for the table `events`")
    while not stop.wait(stream.trigger_us / 1e6) and store.read(EVENTS) is None:
        pass


def _is_empty(store: Store) -> bool:
    usage = store.read(USAGE)
    return usage is None or usage.isEmpty()


def add_batch(store: Store, events: DataFrame, window_seconds: int, number: int) -> None:
    """Add what a batch of the stream holds to `usage` and `waits`; nothing if that was done before."""
    batch = Batch(STREAM, number)
    with ExitStack() as staged:
        rows = _stage(store, staged, events, window_seconds, batch)
        with store.exclusive() as opened:
            opened.add(rows, batch)


def _stage(store: Store, stack: ExitStack, events: DataFrame, window_seconds: int, batch: Batch) -> dict[str, Staged]:
    rows: dict[str, Staged] = {}
    for table, make in ((USAGE, made.usage), (WAITS, made.waits)):
        rows[table.name] = store.stage(table, make(events, window_seconds, batch.number + 1))
        stack.callback(rows[table.name].discard)
    return rows


def refresh(spark: SparkSession, settings: UsageSettings) -> UsageSummary:
    """Make `sharing` and `top_costs` anew from `usage`, `slowed` from `events`; raises PipelineError without any."""
    store = open_store(spark, settings.common)
    usage = read_usage(spark, settings.common)
    summary = _summary(usage)
    decided = _decided(spark, read_table(spark, settings.common, EVENTS), settings.marks)
    if not summary.rows and decided.isEmpty():
        raise PipelineError(f"--out {settings.common.out}: found no event in the table `events`, expected at least one")
    sharing, top_costs = made.sharing(usage), made.top_costs(usage, settings.top)
    with ExitStack() as staged:
        rows: dict[Table, Staged] = {}
        for table, frame in ((SHARING, sharing), (TOP_COSTS, top_costs), (SLOWED, decided)):
            rows[table] = store.stage(table, frame)
            staged.callback(rows[table].discard)
        with store.exclusive() as opened:
            for table, new in rows.items():
                opened.replace(table, new)
    return summary


def read_usage(spark: SparkSession, common: CommonSettings) -> DataFrame:
    """Return `usage` with its parts added up; raises PipelineError if no job has written it yet."""
    return made.add_usage(read_table(spark, common, USAGE))


def read_waits(spark: SparkSession, common: CommonSettings) -> DataFrame:
    """Return `waits` with its parts added up; raises PipelineError if no job has written it yet."""
    return made.add_waits(read_table(spark, common, WAITS))


def _decided(spark: SparkSession, events: DataFrame, marks: Marks) -> DataFrame:
    """Make `slowed`. Events without a decision, which are most tables, are not read for it: file statistics tell."""
    if not events.where(F.col("kind") == THROTTLE).count():
        return spark.createDataFrame([], table_schema(SLOWED))
    return slowed(events, marks)


def _summary(usage: DataFrame) -> UsageSummary:
    names = ("requests", "refused", "watch_frames", "heap_byte_seconds")
    found = usage.agg(F.count(F.lit(1)).alias("rows"), *(F.sum(name).alias(name) for name in names)).first()
    assert found is not None
    return UsageSummary(found["rows"], *(found[name] or 0 for name in names))


def _require_owner(store: Store, settings: UsageSettings, *, stream: bool) -> None:
    """Refuse to add a stream's parts to a batch's rows, or to replace a stream's."""
    # Tables of before the mark have parts only.
    if not stream and (store.stream_of(USAGE) == STREAM or _has_parts(store, of_stream=True)):
        raise StreamOwnsError(f"--out {settings.common.out}: {OF_STREAM}")
    if stream and _has_parts(store, of_stream=False):
        raise PipelineError(
            f"--out {settings.common.out}: got a table `usage` that was not made by a stream, expected none: without"
            " --stream it is made anew; to have a stream do it delete `usage` and `waits`"
        )


def _has_parts(store: Store, *, of_stream: bool) -> bool:
    usage = store.read(USAGE)
    return usage is not None and not usage.where("part > 0" if of_stream else "part = 0").isEmpty()


def _source(spark: SparkSession, common: CommonSettings, stream: StreamSettings) -> DataFrame:
    # Rows that a retention deletes are no news.
    reader = spark.readStream.format("delta").option("skipChangeCommits", "true")
    return reader.option("maxFilesPerTrigger", stream.max_files).load(f"{common.out}/{EVENTS.name}")


def _require_checkpoint(settings: UsageSettings, stream: StreamSettings, *, begun: bool, read: bool) -> None:
    """Refuse a stream that would not go on where the tables are: it would pass by events, or count them twice."""
    parts = urlsplit(stream.checkpoint)
    if parts.scheme not in ("", "file"):
        return
    there = Path(parts.path if parts.scheme else stream.checkpoint, "offsets").exists()
    if (there and not begun) or (read and not there):
        got, expected = ("one", "none") if there else ("none", "the one that the tables were made with")
        raise PipelineError(
            f"--out {settings.common.out}: got {got} at the checkpoint {stream.checkpoint}, expected {expected}; {ANEW}"
        )


def _explained(error: StreamingQueryException, common: CommonSettings) -> PipelineError | None:
    if not any(word in str(error) for word in ("FILE_NOT_EXIST", "FileNotFoundException")):
        return None
    return PipelineError(
        f"--out {common.out}: files of `events` were deleted before the stream had read them, expected"
        f" `compact --retention-days` to keep what is not read; {ANEW}",
        ExitCode.DATA_LOSS,
    )


def _triggered(writer: DataStreamWriter, stream: StreamSettings) -> DataStreamWriter:
    kept = writer.option("checkpointLocation", stream.checkpoint)
    if stream.trigger_us is None:
        return kept.trigger(availableNow=True)
    return kept.trigger(processingTime=f"{stream.trigger_us // 1000} milliseconds")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the job."""
    add_common(parser)
    add_period(parser)
    parser.add_argument("--window", default="1m", metavar="TIME", help="length of a window (default: %(default)s)")
    parser.add_argument(
        "--top", type=int, default=20, metavar="N", help="names of each ranking in `top_costs` (default: %(default)s)"
    )
    for name, default in zip(Marks._fields, ADAPTIVE_MARKS, strict=True):
        parser.add_argument(
            f"--overload-{name}", type=float, default=default, metavar="V",
            help=f"adaptivePublisherThrottlingMemory{name.capitalize()}WatermarkPct of the proxies, which tells"
            " the reasons in `slowed` apart (default: %(default)s)",
        )  # fmt: skip
    add_engine(parser)
    parser.add_argument(
        "--stream", action="store_true", help="add to the tables what has come into `events` since the last time"
    )
    parser.add_argument(
        "--trigger", metavar="TIME", help="with --stream: go on taking what comes, so often: 10s, 1m; until SIGTERM"
    )
    parser.add_argument("--checkpoint", metavar="DIR", help="of --stream (default: _checkpoints/usage in --out)")
    parser.add_argument(
        "--refresh", metavar="TIME",
        help="with --trigger: at most so often `sharing`, `top_costs` and `slowed` are made anew (default: 15m)",
    )  # fmt: skip


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Declare who sums."""
    parser.add_argument(
        "--engine", choices=get_args(Engine), default="auto",
        help="what adds up events (default: duckdb if tables are Parquet on a mounted directory and the master is"
        " local[N], else spark)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run the job and say what it found; raises PipelineError. SIGTERM ends a stream after its batch."""
    common = common_settings(options)
    settings = UsageSettings(
        common, window_seconds("--window", options.window), options.top, given_period(options),
        Marks(options.overload_high, options.overload_low), options.engine,
    )  # fmt: skip
    _require_sense(options, settings)
    stream = _stream_settings(options, common)
    stop = Event() if stream is None else set_by_sigterm()
    with at_work("usage", common, quiet=stream is not None) as spark:
        if stream is None:
            summary = make_usage(spark, settings)
        else:
            summary = follow_usage(spark, settings, stream, lambda text: print(f"usage: {text}", flush=True), stop)
    print(f"usage: {summary}")
    return ExitCode.OK


def _stream_settings(options: argparse.Namespace, common: CommonSettings) -> StreamSettings | None:
    """Take what a stream is told, None for a batch; raises PipelineError for a trigger that is no time."""
    if not options.stream:
        return None
    trigger_us = None if options.trigger is None else micros("--trigger", options.trigger, LEAST_US)
    refresh_us = REFRESH_US if options.refresh is None else micros("--refresh", options.refresh, LEAST_US)
    checkpoint = options.checkpoint or f"{common.out}/_checkpoints/usage"
    return StreamSettings(checkpoint, trigger_us, refresh_us=refresh_us)


def _require_sense(options: argparse.Namespace, settings: UsageSettings) -> None:
    if settings.top < 1:
        raise PipelineError(f"--top: got {settings.top}, expected at least 1")
    if not 0 <= settings.marks.low < settings.marks.high <= 1:
        raise PipelineError(
            f"--overload-low, --overload-high: got {settings.marks.low:g} and {settings.marks.high:g}, expected"
            " fractions, the first below the second"
        )
    if not options.stream and (options.trigger is not None or options.checkpoint):
        raise PipelineError("--trigger and --checkpoint: got no --stream, which they are for")
    if options.trigger is None and options.refresh is not None:
        raise PipelineError("--refresh: got no --trigger, expected one: without it they are made at the end")
    if options.stream and settings.period != ALWAYS:
        raise PipelineError(
            "--since, --until and --cluster: got --stream, which takes every event once; expected none of them"
        )
