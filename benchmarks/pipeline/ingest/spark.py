"""`ingest` by the job: a stream with a checkpoint, started anew and run until it has all that is there."""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import Event

from benchmarks.pipeline.engine import THREADS
from benchmarks.pipeline.ingest import read_settings
from pipeline.core.options import CommonSettings
from pipeline.ingest.settings import IngestSettings
from pipeline.ingest.stream import follow
from pipeline.running.session import build_session


class Engine:
    """Spark in local mode, as a laptop has it."""

    def __init__(self, source: Path, out: Path) -> None:
        self._tables = out / "tables"
        self._topic = read_settings(source)
        common = CommonSettings(str(self._tables), f"local[{THREADS}]", {"spark.driver.memory": "1500m"})
        self._spark = build_session("benchmark", common.master, common.conf)
        self._settings = IngestSettings(common, self._topic.topic, f"{self._tables}/_checkpoint", topic=self._topic)

    def run(self) -> None:
        """Read the topic from its beginning."""
        shutil.rmtree(self._tables, ignore_errors=True)
        self._tables.mkdir()
        follow(self._spark, self._settings, lambda _: None, Event())

    def close(self) -> None:
        """End the session."""
        self._spark.stop()
