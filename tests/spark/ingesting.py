"""A directory of event files, one of tables, and an ingest between them."""

from collections.abc import Mapping
from pathlib import Path
from threading import Event

from pyspark.sql import DataFrame, SparkSession

from pipeline.core.options import CommonSettings, TableFormat
from pipeline.core.tables.events import EVENTS, QUARANTINE
from pipeline.ingest import IngestCounts, IngestSettings, ingest
from pipeline.ingest.settings import Mode
from pipeline.store.sinks import read_table


class Ingest:
    """An ingest that can be run again and again; `lines` are what it said."""

    def __init__(self, spark: SparkSession, directory: Path, common: CommonSettings | None = None) -> None:
        self.spark = spark
        self.source = directory / "in"
        self.source.mkdir(parents=True)
        self.common = common or self.settings(directory)
        self.lines: list[str] = []

    @staticmethod
    def settings(
        directory: Path, table_format: TableFormat = "parquet", conf: Mapping[str, str] | None = None
    ) -> CommonSettings:
        return CommonSettings(str(directory / "out"), table_format, "local[2]", conf or {})

    def run(self, mode: Mode = "batch", *, max_files: int = 1_000, stop: Event | None = None) -> IngestCounts:
        checkpoint = f"{self.common.out}/_checkpoints/ingest"
        settings = IngestSettings(
            self.common, str(self.source), mode, checkpoint, trigger_us=50_000, max_files=max_files
        )
        return ingest(self.spark, settings, self.lines.append, stop)

    def events(self) -> DataFrame:
        return read_table(self.spark, self.common, EVENTS)

    def seqs(self) -> list[int]:
        return sorted(row.seq for row in self.events().select("seq").collect())

    def quarantine(self) -> list[tuple[str, str | None, int]]:
        rows = read_table(self.spark, self.common, QUARANTINE).orderBy("reason", "raw").collect()
        return [(row.reason, row.detail, row.copies) for row in rows]
