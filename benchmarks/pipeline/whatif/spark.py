"""`whatif` by the pipeline itself, in a Spark that runs already."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.pipeline.engine import THREADS
from benchmarks.pipeline.whatif import SCENARIOS, rows_of
from pipeline.replay.job import Place, replay_grid
from pipeline.replay.parts import survey
from pipeline.replay.traces import prepare
from pipeline.running.session import build_session


class Engine:
    """The work of the job without calibration: traces to Parquet, then work items."""

    def __init__(self, events: Path, out: Path, memory: str = "1500m") -> None:
        conf = {"spark.driver.memory": memory, "spark.sql.shuffle.partitions": str(4 * THREADS)}
        self._spark = build_session("bench whatif", f"local[{THREADS}]", conf)
        self._events = events
        self._out = out
        self.seconds: dict[str, float] = {}

    def run(self) -> None:
        """Make the table."""
        begin = time.perf_counter()
        events = self._spark.read.parquet(str(self._events))
        prepared = prepare(self._spark, events, f"file://{self._out.absolute()}/replay_input")
        middle = time.perf_counter()
        place = Place(load=1, fleet=1)
        totals = replay_grid(self._spark, prepared, survey(self._spark, prepared), [place], SCENARIOS)
        counted = [totals[place, number].counts for number in range(len(SCENARIOS))]
        pq.write_table(pa.Table.from_pylist(rows_of(counted)), self._out / "whatif.parquet")
        self.seconds = {"traces": middle - begin, "replay": time.perf_counter() - middle}

    def close(self) -> None:
        """End Spark."""
        self._spark.stop()
