"""The table `days`: how far each job has come, day by day."""

from typing import Final

from pipeline.core.tables.table import Column, Table

DAYS: Final = Table(
    "days",
    "How many events a job has made its tables of, day by day: with others, or other options, it makes them again.",
    ("job", "date"),
    (
        Column("job", "string", "", "usage, storms, or arrivals: the first step of storms."),
        Column("date", "date", "", "The day of the events, UTC."),
        Column("events", "int64", "", "How many there were."),
        Column("options", "string", "", "What the job was told to make of them."),
    ),
)
