"""What test_delta.py has done in a JVM of its own, which begins with the jars of Delta; prints what it saw as JSON."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import date
from pathlib import Path

from pyspark.sql.types import StructType

from eventlog.schema import FIELDS
from pipeline.core.errors import PipelineError
from pipeline.core.schema import table_schema
from pipeline.core.tables.events import EVENTS
from pipeline.jobs.compact import CompactSettings, compact
from pipeline.jobs.usage import StreamSettings, UsageSettings, follow_usage, make_usage
from pipeline.running.session import open_session
from tests.spark.conftest import TEST_CONF
from tests.spark.ingesting import Ingest
from tests.support.pipeline.event_lines import HOUR_US, T0_US, event, write_events


def main(directory: Path) -> dict[str, object]:
    settings = Ingest.settings(directory, "delta", TEST_CONF)
    spark = open_session("tests", settings)
    job = Ingest(spark, directory, settings)
    seen: dict[str, object] = {}
    # The table of events as it was before version 2 of their schema.
    later = {field.name for field in FIELDS if field.since > 1}
    old = StructType([column for column in table_schema(EVENTS) if column.name not in later])
    writer = spark.createDataFrame([], old).write.format("delta").partitionBy(*EVENTS.partition_by)
    writer.save(f"{job.common.out}/{EVENTS.name}")
    write_events(job.source / "a.jsonl.gz", [event(0), event(1), event(1), event(9, ts_us=T0_US - 240 * HOUR_US)])
    (job.source / "b.jsonl").write_text("no json\n")
    seen["batch"] = asdict(job.run())
    write_events(job.source / "c.jsonl", [event(2), event(0)])
    seen["stream"] = asdict(job.run("once"))
    for name in ("0", ".0.crc"):
        Path(directory, "out", "_checkpoints", "ingest", "commits", name).unlink()
    job.run("once")
    seen["seqs"], seen["quarantine"] = job.seqs(), job.quarantine()
    settings_of = CompactSettings(job.common, date(2026, 3, 4), retention_days=3)
    seen["compacted"] = compact(spark, settings_of, job.lines.append).after
    seen["seqs after"] = job.seqs()
    usage, stream = UsageSettings(job.common), StreamSettings(f"{job.common.out}/_checkpoints/usage")
    follow_usage(spark, usage, stream, job.lines.append)
    write_events(job.source / "d.jsonl", [event(3)])
    job.run("once")
    seen["followed"] = follow_usage(spark, usage, stream, job.lines.append).requests
    refused = [refusal(lambda: make_usage(spark, usage))]
    Path(stream.checkpoint).rename(directory / "elsewhere")
    seen["refused"] = [*refused, refusal(lambda: follow_usage(spark, usage, stream, job.lines.append))]
    spark.stop()
    return seen


def refusal(work: Callable[[], object]) -> str:
    try:
        work()
    except PipelineError as error:
        return str(error)
    return "not refused"


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
