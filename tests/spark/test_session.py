from collections.abc import Iterator

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from pipeline.core.errors import PipelineError
from pipeline.core.schema import table_schema
from pipeline.core.tables import TABLES
from pipeline.running.session import build_session


def test_session_counts_in_utc(spark: SparkSession) -> None:
    shown = spark.sql("SELECT CAST(timestamp_micros(0) AS STRING) AS t").collect()[0].t
    assert shown == "1970-01-01 00:00:00"


def test_workers_run_this_python_with_its_libraries(spark: SparkSession) -> None:
    def library_versions(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import numba
        import pyarrow

        for _ in batches:
            yield pd.DataFrame({"versions": [f"{numba.__version__} {pyarrow.__version__}"]})

    rows = spark.range(1, numPartitions=1).mapInPandas(library_versions, "versions string").collect()
    assert len(rows) == 1


def test_every_table_has_a_spark_schema(spark: SparkSession) -> None:
    for table in TABLES.values():
        assert spark.createDataFrame([], table_schema(table)).columns == [column.name for column in table.columns]


def test_delta_without_its_jars_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINE_JARS", "nowhere")
    with pytest.raises(PipelineError, match="found no jar in nowhere"):
        build_session("tests", "local[1]", delta=True)
