"""The Spark schemas that follow from the event schema and from the declarations of the tables."""

from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from eventlog.schema import FIELDS
from pipeline.core.tables.table import Table

_TYPES: Final[dict[str, T.DataType]] = {
    "string": T.StringType(),
    "int16": T.ShortType(),
    "int32": T.IntegerType(),
    "int64": T.LongType(),
    "double": T.DoubleType(),
    "bool": T.BooleanType(),
    "timestamp": T.TimestampType(),
    "date": T.DateType(),
    "map<int32,int64>": T.MapType(T.IntegerType(), T.LongType(), valueContainsNull=False),
}
_IN_ARROW: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "map<int32,int64>": pa.map_(pa.int32(), pa.field("value", pa.int64(), nullable=False)),
}


def event_schema() -> T.StructType:
    """Return the schema with which events are read: every field nullable, since what is read may be malformed."""
    return T.StructType([T.StructField(field.name, _TYPES[field.type]) for field in FIELDS])


def table_schema(table: Table) -> T.StructType:
    """Return the schema of a table of the pipeline."""
    return T.StructType([T.StructField(column.name, _TYPES[column.type], column.nullable) for column in table.columns])


def arrow_schema(table: Table) -> pa.Schema:
    """Return the same for Arrow."""
    return pa.schema([pa.field(column.name, _IN_ARROW[column.type], column.nullable) for column in table.columns])


def require_table(frame: DataFrame, table: Table) -> None:
    """Check that a frame has the columns of a table, in order and type; raises TypeError, for it is a fault of ours.

    Whether a value may be null is not in it: what is read from a file always may.
    """
    got = frame.dtypes
    expected = [(field.name, field.dataType.simpleString()) for field in table_schema(table)]
    if got != expected:
        odd = sorted({name for name, _ in set(got) ^ set(expected)}) or "their order"
        raise TypeError(f"table {table.name}: the frame differs from its declaration in {odd}")
