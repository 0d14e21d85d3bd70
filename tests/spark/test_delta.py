"""The jobs that write Delta Lake: batches and streams of one table, one of before version 2, and compaction."""

from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from eventlog.schema import FIELDS
from pipeline.core.schema import table_schema
from pipeline.core.tables.events import EVENTS
from pipeline.jobs.compact import CompactSettings, compact
from tests.spark.ingesting import Ingest
from tests.support.pipeline.event_lines import HOUR_US, T0_US, event, write_events


def test_delta_takes_batches_and_streams_once_and_compacts(spark: SparkSession, tmp_path: Path) -> None:
    job = Ingest(spark, tmp_path, Ingest.settings(tmp_path, "delta"))
    # The table of events as it was before version 2 of their schema.
    later = {field.name for field in FIELDS if field.since > 1}
    old = StructType([column for column in table_schema(EVENTS) if column.name not in later])
    writer = spark.createDataFrame([], old).write.format("delta").partitionBy(*EVENTS.partition_by)
    writer.save(f"{job.common.out}/{EVENTS.name}")
    write_events(job.source / "a.jsonl.gz", [event(0), event(1), event(1), event(9, ts_us=T0_US - 240 * HOUR_US)])
    (job.source / "b.jsonl").write_text("no json\n")
    batch = job.run()
    assert (batch.read, batch.kept, batch.duplicates, batch.quarantined) == (5, 3, 1, {"malformed": 1})
    write_events(job.source / "c.jsonl", [event(2), event(0)])
    stream = job.run("once")
    # Its first batch has all three files; what is ten days old is late, but is in the table already.
    assert (stream.read, stream.kept, stream.duplicates, stream.quarantined) == (7, 1, 5, {"malformed": 1})
    for name in ("0", ".0.crc"):
        Path(job.common.out, "_checkpoints", "ingest", "commits", name).unlink()
    job.run("once")
    assert job.seqs() == [0, 1, 2, 9]
    assert job.quarantine() == [("malformed", None, 1)]
    settings = CompactSettings(job.common, date(2026, 3, 4), retention_days=3)
    assert compact(spark, settings, job.lines.append).after == 2
    assert job.seqs() == [0, 1, 2]
