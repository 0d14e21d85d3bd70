"""Tables of the theme `events`: what was recorded, once each, and what could not be taken for an event."""

from typing import Final

from eventlog.schema import FIELDS
from pipeline.core.tables.table import Column, Table

EVENT_KEY: Final = ("proxy_id", "boot_id", "seq")
QUARANTINE_KEY: Final = ("source", "reason", "digest")
# In the order in which they are looked for: the first that holds is the reason.
REASONS: Final[dict[str, str]] = {
    "malformed": "no JSON object, or more than one in a line, or a line of more than 1 MiB (`too_long`)",
    "future_version": "written by a later schema than this pipeline knows",
    "past_version": "written by a schema before version 3, which was in no release",
    "wrong_type": "a field is of another type, or does not fit its type",
    "missing_field": "a field that every event has is not there, or is null",
    "bad_value": "a number is negative or larger than can be, a time is impossible, or a word is none of the field's",
}


EVENTS: Final = Table(
    name="events",
    meaning="One row for each event of the log: a topic-list request, or a limited watch frame, at its end.",
    key=EVENT_KEY,
    columns=(
        *(Column(field.name, field.type, field.unit, field.meaning, field.nullable) for field in FIELDS),
        Column("date", "date", "", "Day of ts_us, UTC."),
    ),
    partition_by=("date",),
)

QUARANTINE: Final = Table(
    name="quarantine",
    meaning="One row for each different text of a source that is no event, with the reason.",
    key=QUARANTINE_KEY,
    columns=(
        Column("source", "string", "", "File, or position in the topic, that it came from."),
        Column("reason", "string", "", f"One of {', '.join(REASONS)}."),
        Column("digest", "string", "", "SHA-256 of the whole text, in hexadecimal."),
        Column("detail", "string", "", "Names of the fields at fault, where there are some, or `too_long`.", True),
        Column("raw", "string", "", "The text; its first 65,536 characters."),
        Column("copies", "int64", "lines", "How often the batch that found it first has it."),
        Column("ingested_at", "timestamp", "", "When the batch that found it began."),
        Column("date", "date", "", "Day of ingested_at, UTC."),
    ),
    partition_by=("date",),
)
