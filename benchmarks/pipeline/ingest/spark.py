"""`ingest` by the job: a stream with a checkpoint, started anew and run until it has all that is there."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.pipeline.engine import THREADS
from benchmarks.pipeline.ingest import read_settings
from pipeline.core.options import CommonSettings
from pipeline.ingest import IngestSettings, ingest
from pipeline.running.session import open_session


class Engine:
    """Spark in local mode, as a laptop has it."""

    def __init__(self, source: Path, out: Path) -> None:
        self._tables = out / "tables"
        self._topic = read_settings(source)
        common = CommonSettings(str(self._tables), "parquet", f"local[{THREADS}]", {"spark.driver.memory": "1500m"})
        self._spark = open_session("benchmark", common)
        self._settings = IngestSettings(
            common, self._topic.topic, "once", f"{self._tables}/_checkpoint", topic=self._topic
        )

    def run(self) -> None:
        """Read the topic from its beginning."""
        shutil.rmtree(self._tables, ignore_errors=True)
        self._tables.mkdir()
        ingest(self._spark, self._settings, say=lambda _: None)

    def close(self) -> None:
        """End the session."""
        self._spark.stop()
