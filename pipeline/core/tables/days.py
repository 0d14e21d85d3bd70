"""The table `days`: how far each job has come, day by day."""

from typing import Final

from pipeline.core.tables.table import Column, Table

DAYS: Final = Table(
    "days",
    "The newest of the events of a day that a job has made its tables of: with newer ones it makes them again.",
    ("job", "date"),
    (
        Column("job", "string", "", "usage or storms."),
        Column("date", "date", "", "The day of the events, UTC."),
        Column("seen_at", "timestamp", "", "The latest `ingested_at` of them."),
    ),
)
