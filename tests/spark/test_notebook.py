"""The notebook over the tables: each of its cells runs, in order, where some tables are there and some are not."""

import json
import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.core.options import CommonSettings
from pipeline.running import session
from tests.support.pipeline.catalog import HERE, database, fill

NOTEBOOK = HERE / "tables.ipynb"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def cells() -> list[str]:
    found: dict[str, Any] = json.loads(NOTEBOOK.read_text("utf-8"))
    assert found["nbformat"] == 4
    code = [cell for cell in found["cells"] if cell["cell_type"] == "code"]
    # What somebody's run printed is not ours to publish.
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    return ["".join(cell["source"]) for cell in code]


def test_directory_without_tables_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPELINE_OUT", str(tmp_path))
    monkeypatch.setattr(session, "build_session", lambda app: spark)
    with pytest.raises(RuntimeError, match=f"^PIPELINE_OUT: got {re.escape(str(tmp_path))}, expected"):
        exec(compile(cells()[0], str(NOTEBOOK), "exec"), {})


def test_every_cell_runs_over_tables_that_a_job_wrote(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = CommonSettings(str(tmp_path), None, {})
    usual = {"date": date(2026, 1, 1), "window_start": NOON, "namespace": "t/a"}
    with database(spark, "written"):
        usage = {**usual, "requests": 3, "answered": 2, "refused": 1, "heap_byte_seconds": 3.0 * 2**20}
        fill(spark, common, "usage", {**usage, "cluster": "east"}, {**usage, "cluster": "west"})
        fill(spark, common, "waits", {**usual, "cluster": "east", "wait": "memory", "bucket": 160, "count": 5})
    monkeypatch.setenv("PIPELINE_OUT", str(tmp_path))
    monkeypatch.chdir(HERE)
    # The one Spark of these tests has other settings, which a notebook must not change.
    monkeypatch.setattr(session, "build_session", lambda app: spark)
    names: dict[str, Any] = {}
    with database(spark, "of_notebook"):
        for source in cells():
            exec(compile(source, str(NOTEBOOK), "exec"), names)
    dearest = names["dearest"].set_index(["cluster", "namespace"])
    assert dearest["requests"].to_dict() == {("east", "t/a"): 3, ("west", "t/a"): 3}
    assert dearest["heap_mib_seconds"].to_dict() == {("east", "t/a"): 3.0, ("west", "t/a"): 3.0}
    by_window = names["by_hour"][["cluster", "answered", "refused"]]
    assert by_window.to_numpy().tolist() == [["east", 2, 1], ["west", 2, 1]]
    assert names["requests_chart"].to_dict()["mark"]["type"] == "bar"
    (waited,) = names["waited"].to_dict("records")
    assert (waited["cluster"], waited["requests"]) == ("east", 5)
    assert waited["p99_seconds"] == pytest.approx(2**20 / 1e6, rel=0.05)
