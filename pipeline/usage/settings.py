"""Settings of `usage`, and what a run of it found."""

from dataclasses import dataclass
from typing import Final, Literal

from pipeline.core.marks import ADAPTIVE_MARKS, Marks
from pipeline.core.options import CommonSettings
from pipeline.core.periods import ALWAYS, Period

# Each time three tables are written whole, and their files of before stay for a day: 100 times a day is enough.
REFRESH_US: Final = 900_000_000
Engine = Literal["auto", "spark", "duckdb"]


@dataclass(frozen=True, slots=True)
class UsageSettings:
    """How long windows are, how many names `top_costs` has for each question, and the adaptive throttle's marks."""

    common: CommonSettings
    window_seconds: int = 60
    top: int = 20
    period: Period = ALWAYS
    marks: Marks = ADAPTIVE_MARKS
    engine: Engine = "auto"


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Where a stream keeps how far it has come; times are microseconds.

    `trigger_us` None takes what there is and ends; otherwise what follows from `usage` is made anew every `refresh_us`.
    """

    checkpoint: str
    trigger_us: int | None = None
    max_files: int = 200
    refresh_us: int = REFRESH_US


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """The findings for the line at the end of the job."""

    rows: int
    requests: int
    refused: int
    watch_frames: int
    heap_byte_seconds: float

    def __str__(self) -> str:
        return (
            f"{self.requests:,} requests, {self.refused:,} refused, {self.watch_frames:,} watch frames,"
            f" {self.heap_byte_seconds / 2**20:,.1f} MiB*s of heap, in {self.rows:,} rows"
        )
