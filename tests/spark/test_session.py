import pytest
from pyspark.sql import SparkSession

from pipeline.core.errors import PipelineError
from pipeline.running.session import build_session


def test_session_counts_in_utc(spark: SparkSession) -> None:
    shown = spark.sql("SELECT CAST(timestamp_micros(0) AS STRING) AS t").collect()[0].t
    assert shown == "1970-01-01 00:00:00"


def test_delta_without_its_jars_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINE_JARS", "nowhere")
    with pytest.raises(PipelineError, match="found no jar in nowhere"):
        build_session("tests", "local[1]")
