"""A directory of event files, one of tables, and an ingest between them."""

from pathlib import Path
from threading import Event

from pyspark.sql import DataFrame, SparkSession

from pipeline.core.options import CommonSettings
from pipeline.core.tables.events import EVENTS, QUARANTINE
from pipeline.ingest.settings import IngestSettings
from pipeline.ingest.stream import follow
from pipeline.ingest.write import IngestCounts
from pipeline.store.tables import read_table


class Ingest:
    """An ingest that can be run again and again; `lines` are what it said."""

    def __init__(self, spark: SparkSession, directory: Path, out: Path | None = None) -> None:
        self.spark = spark
        self.source = directory / "in"
        self.source.mkdir(parents=True)
        self.common = CommonSettings(str(out or directory / "out"), "local[2]", {})
        self.checkpoint = directory / "checkpoint"
        self.lines: list[str] = []

    def run(self, *, max_files: int = 1_000, most_quarantined: float | None = None) -> IngestCounts:
        settings = IngestSettings(
            self.common, str(self.source), str(self.checkpoint), max_files=max_files, most_quarantined=most_quarantined
        )
        return follow(self.spark, settings, self.lines.append, Event())

    def events(self) -> DataFrame:
        return read_table(self.spark, self.common, EVENTS)

    def seqs(self) -> list[int]:
        return sorted(row.seq for row in self.events().select("seq").collect())

    def quarantine(self) -> list[tuple[str, str | None, int]]:
        rows = read_table(self.spark, self.common, QUARANTINE).orderBy("reason", "raw").collect()
        return [(row.reason, row.detail, row.copies) for row in rows]
