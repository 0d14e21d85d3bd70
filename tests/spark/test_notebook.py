"""The notebook over the tables: each of its cells runs, in order, over what `usage` wrote."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.core.options import CommonSettings
from pipeline.core.tables.events import EVENTS
from pipeline.running import session
from pipeline.store.sinks import write_table
from pipeline.usage.batch import make_usage
from pipeline.usage.settings import UsageSettings
from tests.support.pipeline.usage_events import SECOND_US, event, frame

NOTEBOOK = Path(__file__).resolve().parents[2] / "deploy" / "pipeline" / "tables.ipynb"


def cells() -> list[str]:
    found: dict[str, Any] = json.loads(NOTEBOOK.read_text("utf-8"))
    assert found["nbformat"] == 4
    code = [cell for cell in found["cells"] if cell["cell_type"] == "code"]
    # What somebody's run printed is not ours to publish.
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    return ["".join(cell["source"]) for cell in code]


def test_every_cell_runs_over_tables_that_a_job_wrote(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = CommonSettings(str(tmp_path), "parquet", None, {})
    some = [
        *(event(n * SECOND_US, namespace="t/a", heap_byte_us=2**20 * SECOND_US, total_us=10) for n in range(3)),
        event(9 * SECOND_US, namespace="t/b", heap_wait_us=2**20, total_us=2**21),
        event(10 * SECOND_US, namespace="t/b", outcome="queue_full", outcome_stage="heap"),
    ]
    write_table(spark, common, EVENTS, frame(spark, some))
    make_usage(spark, UsageSettings(common))
    monkeypatch.setenv("PIPELINE_OUT", str(tmp_path))
    # The one Spark of these tests has other settings, which a notebook must not change.
    monkeypatch.setattr(session, "open_session", lambda app, settings: spark)
    names: dict[str, Any] = {}
    for source in cells():
        exec(compile(source, str(NOTEBOOK), "exec"), names)
    dearest = names["dearest"].set_index("namespace")
    assert dearest["requests"].to_dict() == {"t/a": 3, "t/b": 2}
    assert dearest["heap_mib_seconds"].to_dict() == {"t/a": 3.0, "t/b": 0.0}
    assert names["by_window"][["answered", "refused"]].sum().tolist() == [4, 1]
    assert names["requests_chart"].to_dict()["mark"]["type"] == "bar"
    (waited,) = names["waited"].to_dict("records")
    assert (waited["count"], waited["p50_ms"]) == (5, 0.0)
    assert waited["p99_ms"] == pytest.approx(2**20 / 1000, rel=0.05)
