"""Small files on a file system of Spark, as a lease needs them."""

from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.store.hadoop import HadoopFiles, exists


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
