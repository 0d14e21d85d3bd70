"""From lines, or from rows of generated Parquet, to checked records, and from these to the rows of tables.

A record has the fields of an event, `raw` (its text), `source`, and `reason` and `detail` if it is no event. Records
are the same for batch and for streams; fields that the schema does not know are ignored.
"""

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from eventlog.schema import FIELD_NAMES
from pipeline.core.schema import event_schema
from pipeline.core.tables import Column as Declared
from pipeline.core.tables import Table
from pipeline.core.tables.events import EVENT_KEY, EVENTS, QUARANTINE, QUARANTINE_KEY
from pipeline.transforms.checks import SEVERAL, TOO_LONG, detail, reason

RAW_CHARACTERS: Final = 65_536
# Where from_json puts the text of a line that it could not read wholly.
CORRUPT: Final = "_corrupt"
VERSION: Final = "schema_version"
_KEPT: Final = {*EVENT_KEY, "ts_us", "dropped_before", "date", "hour"}
# Late events are staged so, never kept: enough to look whether `events` has them, and to quarantine them if not.
LATE: Final = Table(
    name="late",
    meaning="One row for each late event of an input.",
    key=EVENT_KEY,
    columns=(
        *(column for column in EVENTS.columns if column.name in _KEPT),
        Declared("source", "string", "", "As in `quarantine`."),
        Declared("raw", "string", "", "The whole text."),
        Declared("reason", "string", "", "`late`."),
        Declared("detail", "string", "", "None.", nullable=True),
    ),
)
OPTIONS: Final = {"columnNameOfCorruptRecord": CORRUPT, "allowSingleQuotes": "false"}


def from_lines(lines: DataFrame, late_before_us: int | None = None) -> DataFrame:
    """Make records of JSON lines; takes `value`, `source` and `damaged`, which says that the value is a mere remainder.

    Blank lines are no records. Lines of more than 1 MiB are not parsed.
    """
    # A later schema, however large its version, shall not look like a number that does not fit.
    fields = [StructField(VERSION, LongType()) if field.name == VERSION else field for field in event_schema()]
    schema = StructType([*fields, StructField(CORRUPT, StringType())])
    # A remainder is a record even if nothing is left of it.
    # Nearly every line begins like an object; only the others are copied to be trimmed.
    present = lines.where(F.expr("startswith(value, '{') OR trim(value) <> '' OR damaged"))
    named = present.select(F.col("value").alias("raw"), "source", "damaged")
    short = F.expr(f"IF({TOO_LONG}, NULL, raw)")
    parsed = named.select("raw", "source", "damaged", F.from_json(short, schema, OPTIONS).alias("event"))
    flat = parsed.select("event.*", "raw", "source", "damaged")
    several = f"IF({TOO_LONG}, true, {SEVERAL})"
    return _with_reason(flat, reason(f"{CORRUPT} IS NOT NULL", several, "damaged", late_before_us))


def from_columns(rows: DataFrame, late_before_us: int | None = None) -> DataFrame:
    """Make records of rows that have the fields of events, and `source`."""
    raw = F.to_json(F.struct(*FIELD_NAMES)).alias("raw")
    why = reason("false", "false", "false", late_before_us)
    return _with_reason(rows.select(*FIELD_NAMES, raw, "source"), why)


def events_of(records: DataFrame) -> DataFrame:
    """Return the rows of the table `events`, duplicates included."""
    return with_hour(records.where(F.col("reason").isNull())).select([column.name for column in EVENTS.columns])


def late_of(records: DataFrame) -> DataFrame:
    """Return what is late, as rows of `LATE`: records that `quarantined_of` takes, and keys that `events` has."""
    return with_hour(records.where(F.col("reason") == "late")).select([column.name for column in LATE.columns])


def quarantined_of(records: DataFrame, ingested_at: datetime) -> DataFrame:
    """Return the rows of the table `quarantine`: equal texts of a source are one, with their number."""
    bad = records.where(F.col("reason").isNotNull())
    # Bytes that are no UTF-8 would make a file that other readers refuse.
    marked = bad.withColumn("raw", F.make_valid_utf8("raw")).withColumn("digest", F.sha2("raw", 256))
    cut = F.first(F.left("raw", F.lit(RAW_CHARACTERS))).alias("raw")
    counted = marked.groupBy(*QUARANTINE_KEY).agg(F.first("detail").alias("detail"), cut, F.count("*").alias("copies"))
    at = F.lit(ingested_at)
    dated = counted.withColumn("ingested_at", at).withColumn("date", F.to_date(at))
    return dated.select([column.name for column in QUARANTINE.columns])


def with_hour(frame: DataFrame) -> DataFrame:
    """Add `date` and `hour` of `ts_us`, UTC."""
    at = F.timestamp_micros("ts_us")
    return frame.withColumn("date", F.to_date(at)).withColumn("hour", F.hour(at))


def _with_reason(flat: DataFrame, why: Column) -> DataFrame:
    named = flat.select(*FIELD_NAMES, "raw", "source", why.alias("reason"))
    return named.withColumn("detail", detail()).withColumn(VERSION, F.col(VERSION).try_cast("smallint"))
