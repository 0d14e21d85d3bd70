"""Make the tables of `usage` from all events of a period; all five are replaced in one step."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from pipeline.core.errors import PipelineError
from pipeline.core.paths import PATTERN_SIGNS, mounted
from pipeline.core.periods import in_period
from pipeline.core.schema import table_schema
from pipeline.core.tables.events import EVENTS
from pipeline.core.tables.slowed import SLOWED
from pipeline.core.tables.table import Table
from pipeline.core.tables.usage import SHARING, TOP_COSTS, USAGE, WAITS
from pipeline.running.duck import summed
from pipeline.running.session import cores, heap_bytes, is_local
from pipeline.store.parquet import STAGING
from pipeline.store.protocol import Staged
from pipeline.store.sinks import open_store, read_table
from pipeline.transforms import usage as made
from pipeline.usage.settings import UsageSettings, UsageSummary
from pipeline.usage.tables import decided, require_owner, summary_of


def make_usage(spark: SparkSession, settings: UsageSettings) -> UsageSummary:
    """Make the five tables from all events of the period; raises PipelineError if there are none."""
    store = open_store(spark, settings.common)
    require_owner(store, settings, stream=False)
    whole = read_table(spark, settings.common, EVENTS)
    events = in_period(whole, settings.period)
    # The tables made of `usage` are small: their jobs fill the gaps between the tasks of `waits`.
    with ExitStack() as staged, ThreadPoolExecutor(1) as beside:
        rows: dict[Table, Staged] = {}

        def stage(table: Table, frame: DataFrame) -> DataFrame:
            rows[table] = staged.enter_context(store.stage(table, frame))
            return rows[table].frame

        of_usage, of_waits = _both(spark, staged, whole, settings)
        usage = stage(USAGE, of_usage)
        waits = beside.submit(stage, WAITS, of_waits)
        summary = summary_of(usage)
        if stage(SLOWED, decided(spark, events, settings.marks)).isEmpty() and not summary.rows:
            raise PipelineError(
                f"--out {settings.common.out}: found no event from {settings.period}, expected at least one in `events`"
            )
        stage(SHARING, made.sharing(usage))
        stage(TOP_COSTS, made.top_costs(usage, settings.top))
        waits.result()
        with store.exclusive() as opened:
            # A stream may have begun meanwhile.
            require_owner(store, settings, stream=False)
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
