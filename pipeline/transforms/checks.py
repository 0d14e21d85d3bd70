"""What makes a record no event: the reasons of `pipeline.tables.events.REASONS`, as columns.

Rule: every record has no reason or exactly one, the first that holds in the order of `REASONS`. Texts are not checked
for their JSON type: a number where a text is expected reads as its digits.
"""

from functools import reduce
from operator import and_, or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from eventlog.schema import FIELD_NAMES, FIELDS, SCHEMA_VERSION, Field

__all__ = ["detail", "one_object", "reason"]

# The first microsecond that has no date of four digits.
END_OF_TIME_US: Final = 253_402_300_800_000_000
REQUIRED: Final = tuple(field.name for field in FIELDS if not field.nullable)
NUMBERS: Final = tuple(field for field in FIELDS if field.type in ("int16", "int32", "int64"))
WORDS: Final = tuple(field for field in FIELDS if field.values)


def one_object(raw: Column) -> Column:
    """Say whether a line that begins with an object holds nothing after it.

    `from_json` reads the first object and is silent about the rest, as of two events whose line break was lost.
    """
    ends_with_the_first_brace = F.instr(raw, "}") == F.length(F.rtrim(raw))
    elements = F.from_json(F.concat(F.lit("["), raw, F.lit("]")), "array<map<string,string>>")
    # Braces within texts are rare: only then is the line read again.
    return F.when(ends_with_the_first_brace, True).otherwise(F.coalesce(F.size(elements) == 1, F.lit(False)))


def reason(unread: Column, single: Column, damaged: Column, late_before_us: int | None) -> Column:
    """Give the reason, null for an event; the frame has the fields of events.

    `unread` says that `from_json` met something that it could not read; without `late_before_us` nothing is late.
    """
    nothing_read = reduce(and_, (F.col(name).isNull() for name in FIELD_NAMES))
    found = (
        F.when(damaged, "truncated")
        .when(~single | (unread & nothing_read), "malformed")
        .when(F.col("schema_version") > SCHEMA_VERSION, "future_version")
        .when(unread, "wrong_type")
        .when(reduce(or_, (F.col(name).isNull() for name in REQUIRED)), "missing_field")
        .when(_some_value_is_bad(), "bad_value")
    )
    if late_before_us is not None:
        found = found.when(F.col("ts_us") < late_before_us, "late")
    return found


def detail(why: Column) -> Column:
    """Name the fields at fault, null where there are none to name."""
    missing = F.concat_ws(", ", *(F.when(F.col(name).isNull(), F.lit(name)) for name in REQUIRED))
    bad = F.concat_ws(", ", *(F.when(_is_bad(field), F.lit(field.name)) for field in (*NUMBERS, *WORDS)))
    names = F.when(why.isin("missing_field", "wrong_type"), missing).when(why == "bad_value", bad)
    return F.when(names != "", names)


def _some_value_is_bad() -> Column:
    least = F.least(*(F.col(field.name).cast("bigint") for field in NUMBERS))
    special = reduce(or_, (_is_bad(field) for field in (*_bounded(), *WORDS)))
    return (least < 0) | special


def _bounded() -> tuple[Field, ...]:
    return tuple(field for field in NUMBERS if field.name in ("schema_version", "ts_us"))


def _is_bad(field: Field) -> Column:
    """Say whether a field has a value that it cannot have; null is none."""
    column = F.col(field.name)
    if field.values:
        found = ~column.isin(*field.values)
    elif field.name == "schema_version":
        found = column < 1
    elif field.name == "ts_us":
        found = (column < 0) | (column >= END_OF_TIME_US)
    else:
        found = column < 0
    return F.coalesce(found, F.lit(False))
