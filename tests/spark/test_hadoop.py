"""Small files on a file system of Spark, as a lease needs them."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.core.errors import PipelineError
from pipeline.store.hadoop import HadoopFiles, exists
from pipeline.store.lease import Clock, acquire


def test_a_file_is_made_once_and_changed_and_deleted(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark, f"file://{tmp_path}/some where")
    assert (files.names(), files.read("a")) == ([], None)
    assert files.create("a", "first")
    assert not files.create("a", "second")
    assert (files.names(), files.read("a")) == (["a"], "first")
    files.replace("a", "third, with an é")
    assert files.read("a") == "third, with an é"
    files.delete("a")
    files.delete("a")
    assert files.names() == []
    assert exists(spark, f"file://{tmp_path}/some where")
    assert not exists(spark, f"file://{tmp_path}/nowhere")


def test_a_lease_is_held_by_one(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark, f"file://{tmp_path}/lease")
    first = acquire(files, "first", "tables", Clock())
    with pytest.raises(PipelineError, match="tables: first has been writing there"):
        acquire(files, "second", "tables", Clock(patience_seconds=0))
    first.beat()
    first.require()
    first.release()
    second = acquire(files, "second", "tables", Clock(patience_seconds=0))
    with pytest.raises(PipelineError, match="second writes there now"):
        first.require()
    second.require()
