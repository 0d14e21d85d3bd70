"""The tables of `usage` by the job itself, its store included; Spark adds up."""

from __future__ import annotations

from pathlib import Path

from benchmarks.pipeline.engine import THREADS
from benchmarks.pipeline.usage.work import TOP, WINDOW_SECONDS
from pipeline.core.options import CommonSettings
from pipeline.running.session import open_session
from pipeline.usage.batch import make_usage
from pipeline.usage.settings import Engine as Sums
from pipeline.usage.settings import UsageSettings


class Engine:
    """Spark in local mode, as a laptop has it."""

    engine: Sums = "spark"

    def __init__(self, events: Path, out: Path) -> None:
        (out / "events").symlink_to(events.absolute(), target_is_directory=True)
        conf = {"spark.driver.memory": "1500m"}
        common = CommonSettings(str(out), "parquet", f"local[{THREADS}]", conf)
        self._spark = open_session("benchmark", common)
        self._settings = UsageSettings(common, WINDOW_SECONDS, TOP, engine=self.engine)

    def run(self) -> None:
        """Make all four tables."""
        make_usage(self._spark, self._settings)

    def close(self) -> None:
        """End the session."""
        self._spark.stop()
