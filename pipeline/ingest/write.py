"""From records to the tables `events` and `quarantine`: each event once, everything counted, nothing silently lost.

Rule: what was read is what was kept, what was quarantined and what was a duplicate; if these do not add up, nothing is
written. Both tables are added to by key, so that what comes again, as a batch after a crash, adds nothing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F

from eventlog.schema import SCHEMA_VERSION
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.tables.events import EVENT_KEY, EVENTS, QUARANTINE, REASONS
from pipeline.store.tables import add_new, on_days
from pipeline.transforms.events import events_of, quarantined_of

# A condition with more days than this is as long as it is of use.
_MOST_DAYS: Final = 100


@dataclass(frozen=True, slots=True)
class IngestCounts:
    """The outcome of the records of an input, as counts; `lost` are events that the proxies themselves had to drop."""

    read: int = 0
    kept: int = 0
    duplicates: int = 0
    quarantined: Mapping[str, int] = field(default_factory=dict)
    lost: int = 0
    newest_us: int | None = None

    def __add__(self, other: "IngestCounts") -> "IngestCounts":
        newest = [each for each in (self.newest_us, other.newest_us) if each is not None]
        summed = ("read", "kept", "duplicates", "lost")
        return IngestCounts(
            **{name: getattr(self, name) + getattr(other, name) for name in summed},
            quarantined=dict(Counter(self.quarantined) + Counter(other.quarantined)),
            newest_us=max(newest, default=None),
        )

    @property
    def faults(self) -> str:
        """List what was quarantined; blank lines, if nothing was, are the only ones that are no event."""
        return ", ".join(f"{count} {reason}" for reason, count in self.quarantined.items()) or "blank"

    @property
    def newer(self) -> str:
        """Say what to do about events of a later schema; empty without any."""
        if not self.quarantined.get("future_version"):
            return ""
        return f"; proxies are newer than this pipeline, which knows events up to version {SCHEMA_VERSION}: upgrade it"

    def refuse_more_than(self, percent: float | None) -> None:
        """Raise PipelineError if more than this part of the rows was quarantined; None is no bound."""
        quarantined = sum(self.quarantined.values())
        if percent is not None and 100 * quarantined > percent * self.read:
            share = 100 * quarantined / self.read
            raise PipelineError(
                f"--fail-if-quarantined: got {share:.3g} % of {self.read} rows that are no events ({self.faults}),"
                f" expected at most {percent:g} %: see the table `quarantine`; a run without it passes them",
                ExitCode.QUARANTINED,
            )

    def __str__(self) -> str:
        reasons = f", {self.faults}" if self.quarantined else ""
        lost = f"; {self.lost} lost by proxies" if self.lost else ""
        return f"{self.read} read: {self.kept} kept, {self.duplicates} duplicates{reasons}{lost}{self.newer}"


def write(spark: SparkSession, common: CommonSettings, records: DataFrame, ingested_at: datetime) -> IngestCounts:
    """Write the records that the tables do not have yet; `ingested_at` is when this batch began.

    Raises PipelineError.
    """
    seen = Observation()
    of_reasons = (F.count(F.when(F.col("reason") == reason, 1)).alias(reason) for reason in REASONS)
    counted = records.observe(seen, F.count(F.lit(1)).alias("read"), *of_reasons)
    with _computed(events_of(counted)) as events:
        read, quarantined = seen.get.get("read") or 0, {name: n for name in REASONS if (n := seen.get.get(name))}
        days = events.groupBy("date").agg(F.count("*"), F.max("ts_us")).collect()
        rows = sum(row[1] for row in days)
        copies = 0
        if quarantined:
            with _computed(quarantined_of(records, ingested_at)) as bad:
                copies = bad.agg(F.sum("copies")).collect()[0][0] or 0
                _require_balance(read, rows, copies, quarantined)
                add_new(spark, common, QUARANTINE, bad)
        else:
            _require_balance(read, rows, copies, quarantined)
        fresh = _each_once(events, rows)
        kept = add_new(spark, common, EVENTS, fresh, _on([row[0] for row in days])) if rows else 0
        lost = fresh.agg(F.sum("dropped_before")).collect()[0][0] if kept else 0
    return IngestCounts(read, kept, rows - kept, quarantined, lost, max((row[2] for row in days), default=None))


@contextmanager
def _computed(frame: DataFrame) -> Iterator[DataFrame]:
    """Compute a frame once, for all that is asked of it in the block."""
    kept = frame.persist(StorageLevel.DISK_ONLY)
    try:
        kept.count()
        yield kept
    finally:
        kept.unpersist()


def _require_balance(read: int, kept: int, set_aside: int, quarantined: Mapping[str, int]) -> None:
    """Check that all passes over the input saw the same records."""
    if (kept, set_aside) != (read - sum(quarantined.values()), sum(quarantined.values())):
        raise PipelineError(
            f"got {read} records, of which {kept} were kept and {set_aside} quarantined: the input changed while it was"
            " read; run again",
            ExitCode.FAILED,
        )


def _each_once(events: DataFrame, rows: int) -> DataFrame:
    """Return the events with each key once: with the most lost events, as each sink of a proxy counts its own."""
    if _different(events) == rows:
        return events
    number = F.row_number().over(Window.partitionBy(*EVENT_KEY).orderBy(F.desc("dropped_before"), "ts_us"))
    return events.withColumn("number", number).where("number = 1").drop("number")


def _different(events: DataFrame) -> int:
    # A bit for each, 64 neighbours in a number: hardly anything is left to shuffle, where `distinct` moves every key.
    neighbours = events.groupBy("proxy_id", "boot_id", F.shiftright("seq", 6))
    bits = neighbours.agg(F.expr("bit_or(shiftleft(1L, CAST(seq & 63 AS INT)))").alias("bits"))
    return int(bits.agg(F.sum(F.bit_count("bits"))).collect()[0][0] or 0)


def _on(days: list[date]) -> str:
    """Return the condition on `events` outside of which no event of these days can be."""
    if len(days) > _MOST_DAYS:
        return f"t.date BETWEEN DATE'{min(days)}' AND DATE'{max(days)}'"
    return f"t.{on_days(days)}"
