"""Checks that tell whether a record is an event: the reasons of `pipeline.core.tables.events`, as SQL over its fields.

Rule: every record has no reason or exactly one, the first that holds in the order of `REASONS`. Texts are not checked
for their JSON type: a number where a text is expected reads as its digits.
"""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from eventlog.schema import FIELD_NAMES, FIELDS, SCHEMA_VERSION, Field

# Those before were in no release.
OLDEST_VERSION: Final = 3
# No request lasts two years, and no list takes a pebibyte: sums of what is accepted fit into 63 bits.
MOST: Final = {"us": 2**46, "bytes": 2**50}
# A moment has a bound of its own, and a group of processes without a limit has one of nearly 2^63.
OTHERWISE_BOUND: Final = ("ts_us", "memory_limit_bytes")
# The first microsecond that has no date of four digits; every event ends before.
END_OF_TIME_US: Final = 253_402_300_800_000_000
LAST_US: Final = END_OF_TIME_US - MOST["us"]
REQUIRED: Final = tuple(field.name for field in FIELDS if not field.nullable)
NUMBERS: Final = tuple(field for field in FIELDS if field.type in ("int16", "int32", "int64"))
CHECKED: Final = tuple(field for field in FIELDS if field.values or field in NUMBERS)
# No event is nearly as long, and to parse what is longer takes minutes and many times its size.
TOO_LONG: Final = f"octet_length(raw) > {1024 * 1024}"
# Whether the first brace that closes anything is the last character but for blanks. Bytes are compared, at a tenth of
# the cost of `instr` and `length`, which decode what they pass, and took a third of the time of an ingest.
_ONE_BRACE: Final = (
    "endswith(rtrim(raw), '}') AND NOT contains("
    "CAST(substring(CAST(rtrim(raw) AS BINARY), 1, octet_length(rtrim(raw)) - 1) AS STRING), '}')"
)
# `from_json` reads the first object of a line and is silent about the rest, as of two events whose line break was lost.
# Braces within texts are rare: only then is the line read again, as the only element of an array and as the only value
# of an object. A text that could end the one early, `],[`, does not end the other.
SEVERAL: Final = (
    f"CASE WHEN {_ONE_BRACE} THEN false"
    " ELSE coalesce(size(from_json('[' || raw || ']', 'array<map<string,string>>')) <> 1, true)"
    """ OR coalesce(size(from_json('{"":' || raw || '}', 'map<string,string>')) <> 1, true) END"""
)


def reason(unread: str, several: str) -> Column:
    """Return the reason, null for an event; the frame has the fields of events.

    The conditions are SQL: `unread` says that `from_json` met something that it could not read, `several` that the
    line holds more than one object.
    """
    least = ", ".join(f"CAST({field.name} AS BIGINT)" for field in NUMBERS)
    others = [field for field in CHECKED if field.values or field.name == "ts_us"]
    nothing_read = " AND ".join(f"{name} IS NULL" for name in FIELD_NAMES)
    cases = {
        "malformed": f"({several}) OR (({unread}) AND {nothing_read})",
        "future_version": f"schema_version > {SCHEMA_VERSION}",
        "past_version": f"schema_version < {OLDEST_VERSION}",
        "wrong_type": unread,
        "missing_field": " OR ".join(f"{name} IS NULL" for name in REQUIRED),
        "bad_value": " OR ".join(
            [f"least({least}) < 0", *(f"({_is_bad(field)})" for field in others), *map(_too_large, MOST)]
        ),
    }
    return F.expr("CASE " + " ".join(f"WHEN {holds} THEN '{name}'" for name, holds in cases.items()) + " END")


def detail() -> Column:
    """Return the fields at fault by `reason`, or that the line was too long; null where there is nothing to say."""
    missing = ", ".join(f"IF({name} IS NULL, '{name}', NULL)" for name in REQUIRED)
    bad = ", ".join(f"IF({_is_bad(field)}, '{field.name}', NULL)" for field in CHECKED)
    return F.expr(
        "nullif(CASE"
        f" WHEN reason IN ('missing_field', 'wrong_type') THEN concat_ws(', ', {missing})"
        f" WHEN reason = 'bad_value' THEN concat_ws(', ', {bad})"
        f" WHEN reason = 'malformed' AND {TOO_LONG} THEN 'too_long'"
        " END, '')"
    )


def _too_large(unit: str) -> str:
    names = ", ".join(field.name for field in NUMBERS if _is_bounded(field) and field.unit == unit)
    return f"greatest({names}) >= {MOST[unit]}"


def _is_bounded(field: Field) -> bool:
    return field.type == "int64" and field.unit in MOST and field.name not in OTHERWISE_BOUND


def _is_bad(field: Field) -> str:
    """Return the SQL condition that a field has a value that it cannot have; null is no value."""
    if field.values:
        return f"{field.name} NOT IN ({', '.join(repr(value) for value in field.values)})"
    if field.name == "ts_us":
        return f"ts_us < 0 OR ts_us >= {LAST_US}"
    if _is_bounded(field):
        return f"{field.name} < 0 OR {field.name} >= {MOST[field.unit]}"
    return f"{field.name} < 0"
