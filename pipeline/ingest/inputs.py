"""What `write` takes its records from: event files, or the messages of a topic."""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from pipeline.sources import pulsar
from pipeline.transforms.events import from_lines


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of a topic: all that it holds, or those of one batch of a stream."""

    frame: DataFrame

    def records(self, late_before_us: int | None) -> DataFrame:
        """Read them; the same each time, since whole entries of a topic do not change."""
        return from_lines(pulsar.lines(self.frame), late_before_us)

    def after(self, error: Exception) -> "Messages":
        """Raise what went wrong: no other way to read them would help."""
        raise pulsar.explain(error) or error
