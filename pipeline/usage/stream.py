"""Follow the table `events`: each batch of a stream adds a part to `usage` and to `waits`.

Rule: both parts come in one step, and once however often the batch is run again. The tables that follow from parts
are replaced now and then and when the stream ends, and so is `slowed`, which is made of all events: pauses of one batch
end in another.
A stream needs Delta, which says what came to a table since, whatever was merged meanwhile, and takes a batch once.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.schema import table_schema
from pipeline.core.tables.events import EVENTS
from pipeline.core.tables.slowed import SLOWED
from pipeline.core.tables.table import Table
from pipeline.core.tables.usage import SHARING, TOP_COSTS, USAGE, WAITS
from pipeline.running.pace import Pace
from pipeline.running.stopping import Batches
from pipeline.store.protocol import Batch, Staged, Store
from pipeline.store.sinks import open_store, read_table
from pipeline.transforms import usage as made
from pipeline.usage.settings import StreamSettings, UsageSettings, UsageSummary
from pipeline.usage.tables import ANEW, STREAM, decided, has_parts, read_usage, require_owner, summary_of


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
    require_owner(store, settings, stream=True)
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
    _require_checkpoint(settings, stream, begun=begun, read=has_parts(store, of_stream=True))
    with store.stage(USAGE, spark.createDataFrame([], table_schema(USAGE))) as empty, store.exclusive() as opened:
        require_owner(store, settings, stream=True)
        if store.read(USAGE) is None:
            opened.replace(USAGE, empty)
        opened.keep_for(USAGE, STREAM)


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
        rows[table.name] = stack.enter_context(store.stage(table, make(events, window_seconds, batch.number + 1)))
    return rows


def refresh(spark: SparkSession, settings: UsageSettings) -> UsageSummary:
    """Make `sharing` and `top_costs` anew from `usage`, `slowed` from `events`; raises PipelineError without any."""
    store = open_store(spark, settings.common)
    usage = read_usage(spark, settings.common)
    summary = summary_of(usage)
    slowed = decided(spark, read_table(spark, settings.common, EVENTS), settings.marks)
    if not summary.rows and slowed.isEmpty():
        raise PipelineError(f"--out {settings.common.out}: found no event in the table `events`, expected at least one")
    sharing, top_costs = made.sharing(usage), made.top_costs(usage, settings.top)
    with ExitStack() as staged:
        rows: dict[Table, Staged] = {}
        for table, frame in ((SHARING, sharing), (TOP_COSTS, top_costs), (SLOWED, slowed)):
            rows[table] = staged.enter_context(store.stage(table, frame))
        with store.exclusive() as opened:
            for table, new in rows.items():
                opened.replace(table, new)
    return summary


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
