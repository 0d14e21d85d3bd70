"""Tables of Parquet get into Delta once, also those that an older version had not finished."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.core.errors import PipelineError
from pipeline.core.schema import table_schema
from pipeline.core.tables.events import EVENTS
from pipeline.core.tables.whatif import WHATIF
from pipeline.jobs.convert import convert
from pipeline.store.sinks import read_table, write_table
from tests.spark.ingesting import Ingest
from tests.support.pipeline.event_lines import event, write_events


def test_tables_are_copied_once(spark: SparkSession, tmp_path: Path) -> None:
    job = Ingest(spark, tmp_path)
    write_events(job.source / "a.jsonl", [event(0), event(1)])
    (job.source / "b.jsonl").write_text("no json\n")
    job.run()
    # What is read has a map whose values may be null, as Parquet has it.
    write_table(spark, job.common, WHATIF, spark.createDataFrame([], table_schema(WHATIF)))
    # A file that an older version had decided to move, and did not.
    (moved,) = Path(job.common.out, "events").rglob("*.parquet")
    target = moved.relative_to(job.common.out)
    staged = Path(job.common.out, "_staging", "old", moved.name)
    staged.parent.mkdir(parents=True)
    moved.rename(staged)
    entry = {"id": "1", "moves": [[str(staged.relative_to(job.common.out)), str(target)]], "removes": [], "notes": {}}
    journal = Path(job.common.out, "_journal")
    journal.mkdir()
    (journal / "1.json").write_text(json.dumps(entry))
    delta = replace(job.common, out=str(tmp_path / "delta"), format="delta")
    assert convert(spark, job.common.out, delta) == {"events": 2, "quarantine": 1, "whatif": 0}
    assert sorted(row.seq for row in read_table(spark, delta, EVENTS).collect()) == [0, 1]
    with pytest.raises(PipelineError, match="got events, quarantine, whatif, expected a store without them"):
        convert(spark, job.common.out, delta)
    with pytest.raises(PipelineError, match="found no table"):
        convert(spark, str(tmp_path / "nothing"), delta)
    with pytest.raises(PipelineError, match="got the directory of --tables, expected another"):
        convert(spark, job.common.out, replace(delta, out=f"file://{job.common.out}"))
