"""From lines to checked records, and from these to the rows of tables.

A record has the fields of an event, `raw` (its text), `source`, and `reason` and `detail` if it is no event. Fields
that the schema does not know are ignored.
"""

from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from eventlog.schema import FIELD_NAMES
from pipeline.core.schema import event_schema
from pipeline.core.tables.events import QUARANTINE, QUARANTINE_KEY
from pipeline.transforms.checks import SEVERAL, TOO_LONG, detail, reason

RAW_CHARACTERS: Final = 65_536
# Where from_json puts the text of a line that it could not read wholly.
CORRUPT: Final = "_corrupt"
VERSION: Final = "schema_version"
OPTIONS: Final = {"columnNameOfCorruptRecord": CORRUPT, "allowSingleQuotes": "false"}


def from_lines(lines: DataFrame) -> DataFrame:
    """Make records of JSON lines: of `value` and `source`. Blank lines are no records.

    Lines of more than 1 MiB are not parsed.
    """
    # A later schema, however large its version, shall not look like a number that does not fit.
    fields = [StructField(VERSION, LongType()) if field.name == VERSION else field for field in event_schema()]
    schema = StructType([*fields, StructField(CORRUPT, StringType())])
    # Nearly every line begins like an object; only the others are copied to be trimmed.
    present = lines.where(F.expr("startswith(value, '{') OR trim(value) <> ''"))
    short = F.expr(f"IF({TOO_LONG}, NULL, raw)")
    named = present.select(F.col("value").alias("raw"), "source")
    parsed = named.select("raw", "source", F.from_json(short, schema, OPTIONS).alias("event"))
    flat = parsed.select("event.*", "raw", "source")
    why = reason(f"{CORRUPT} IS NOT NULL", f"IF({TOO_LONG}, true, {SEVERAL})")
    checked = flat.select(*FIELD_NAMES, "raw", "source", why.alias("reason"))
    return checked.withColumn("detail", detail()).withColumn(VERSION, F.col(VERSION).try_cast("smallint"))


def events_of(records: DataFrame) -> DataFrame:
    """Return the rows of the table `events`, duplicates included."""
    return with_date(records.where(F.col("reason").isNull()).select(*FIELD_NAMES))


def with_date(events: DataFrame) -> DataFrame:
    """Make rows of the table `events` of the fields of events."""
    return events.withColumn("date", F.to_date(F.timestamp_micros("ts_us")))


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
