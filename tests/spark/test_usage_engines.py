"""Who adds up events: DuckDB on one machine, otherwise Spark, and the same comes of it."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.tables.events import EVENTS
from pipeline.store.sinks import write_table
from pipeline.usage.batch import make_usage
from pipeline.usage.settings import Engine, UsageSettings
from pipeline.usage.tables import read_usage
from tests.support.pipeline.usage_events import SECOND_US, event, frame

ENGINES: tuple[Engine, ...] = ("duckdb", "spark")


def tables(spark: SparkSession, out: Path) -> CommonSettings:
    common = CommonSettings(str(out), "parquet", None, {})
    events = [event(n * SECOND_US, heap_byte_us=1000 * n, total_us=n, group_size=2) for n in range(1, 11)]
    write_table(spark, common, EVENTS, frame(spark, events))
    return common


def test_files_of_before_a_column_was_there_are_added_up(spark: SparkSession, tmp_path: Path) -> None:
    common = tables(spark, tmp_path)
    for path in (tmp_path / "events").rglob("*.parquet"):
        pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["cluster", "group_size"]), path)
        # The checksum of what was there before.
        path.with_name(f".{path.name}.crc").unlink()
    found = [make_usage(spark, UsageSettings(common, engine=engine)) for engine in ENGINES]
    assert found[0].requests == 10
    assert found[0] == found[1]


def test_damaged_file_ends_with_its_name_and_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    common = tables(spark, tmp_path)
    make_usage(spark, UsageSettings(common))
    path = next((tmp_path / "events").rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(PipelineError, match=path.name) as caught:
        make_usage(spark, UsageSettings(common))
    assert caught.value.code == ExitCode.FAILED
    assert read_usage(spark, common).count() > 0
    assert not list((tmp_path / "_staging").glob("duckdb-*"))
