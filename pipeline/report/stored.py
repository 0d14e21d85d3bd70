"""The tables of the pipeline as the report finds them: one that no job has written yet is no error."""

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pipeline.options import TableFormat
from pipeline.schema import table_schema
from pipeline.tables import TABLES

__all__ = ["stored"]

_ABSENT = ("PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_MISSING", "DELTA_SCHEMA_NOT_SET", "DELTA_PATH")


def stored(spark: SparkSession, out: str, name: str, table_format: TableFormat = "parquet") -> DataFrame | None:
    """Open the table of that name; None if it is not there."""
    reader = spark.read.format(table_format)
    if table_format == "parquet":
        reader = reader.schema(table_schema(TABLES[name]))
    try:
        return reader.load(f"{out}/{name}")
    except AnalysisException as error:
        if any(word in str(error) for word in _ABSENT):
            return None
        raise
