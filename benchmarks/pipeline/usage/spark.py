"""The tables of `usage` by the job itself, its store included."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.pipeline.engine import THREADS
from benchmarks.pipeline.usage.work import TOP, WINDOW_SECONDS
from pipeline.core.options import CommonSettings
from pipeline.jobs.usage import UsageSettings, make_usage
from pipeline.running.session import build_session


class Engine:
    """Spark in local mode, as a laptop has it."""

    def __init__(self, events: Path, out: Path) -> None:
        (out / "events").symlink_to(events.absolute(), target_is_directory=True)
        self._out = out
        self._spark = build_session("benchmark", f"local[{THREADS}]", {"spark.driver.memory": "1500m"})
        self._settings = UsageSettings(CommonSettings(str(out), None, {}), WINDOW_SECONDS, TOP)

    def run(self) -> None:
        """Make all tables, as if it were the first time."""
        for table in self._out.iterdir():
            if not table.is_symlink():
                shutil.rmtree(table)
        make_usage(self._spark, self._settings)

    def close(self) -> None:
        """End the session."""
        self._spark.stop()
