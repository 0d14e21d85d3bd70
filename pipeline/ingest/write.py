"""From records to the tables `events` and `quarantine`: each event once, everything counted, nothing silently lost.

Rule: what was read is what was kept, what was quarantined and what was a duplicate; if these do not add up, nothing is
written. Events are staged before they are looked at: duplicates are rare, and to look for them among three columns of
staged rows costs less than to shuffle all of them. So are late ones: those that `events` has are duplicates.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any, Final

from pyspark.sql import DataFrame, Observation, Window
from pyspark.sql import functions as F

from eventlog.schema import SCHEMA_VERSION
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.tables import Table
from pipeline.core.tables.events import EVENT_KEY, EVENTS, QUARANTINE, QUARANTINE_KEY, REASONS
from pipeline.running.session import tasks_fail_quietly
from pipeline.sources.files import EventFiles
from pipeline.sources.pulsar import Messages
from pipeline.store.protocol import Batch, OpenStore, Staged, Store
from pipeline.transforms.events import LATE, events_of, late_of, quarantined_of

# With more hours than this to look at, only their days are named: a condition for each would not help any more.
MOST_HOURS: Final = 100
Stage = Callable[[Table, DataFrame], Staged]
# Each gives the same records each time it is asked, and after an error with which input to try again.
Input = EventFiles | Messages


@dataclass(frozen=True, slots=True)
class IngestCounts:
    """The outcome of the records of an input, as counts.

    `lost` are events that the proxies themselves had to drop, `passed_by` files that a stream takes for read because of
    their age.
    """

    read: int = 0
    kept: int = 0
    duplicates: int = 0
    quarantined: Mapping[str, int] = field(default_factory=dict)
    lost: int = 0
    newest_us: int | None = None
    passed_by: int = 0

    def __add__(self, other: "IngestCounts") -> "IngestCounts":
        newest = [each for each in (self.newest_us, other.newest_us) if each is not None]
        summed = ("read", "kept", "duplicates", "lost", "passed_by")
        return IngestCounts(
            **{name: getattr(self, name) + getattr(other, name) for name in summed},
            quarantined=dict(Counter(self.quarantined) + Counter(other.quarantined)),
            newest_us=max(newest, default=None),
        )

    @property
    def faults(self) -> str:
        """List what was quarantined; blank lines, if nothing was, are the only ones that are no event."""
        return ", ".join(f"{count} {reason}" for reason, count in self.quarantined.items()) or "blank"

    def __str__(self) -> str:
        reasons = f", {self.faults}" if self.quarantined else ""
        lost = f"; {self.lost} lost by proxies" if self.lost else ""
        old = f"; {self.passed_by} files passed by, as they are older than --max-file-age" if self.passed_by else ""
        return f"{self.read} read: {self.kept} kept, {self.duplicates} duplicates{reasons}{lost}{old}{self.newer}"

    @property
    def newer(self) -> str:
        """Say what to do about events of a later schema; empty without any."""
        if not self.quarantined.get("future_version"):
            return ""
        return f"; proxies are newer than this pipeline, which knows events up to version {SCHEMA_VERSION}: upgrade it"


def write(
    store: Store, given: Input, ingested_at: datetime, late_before_us: int | None = None, batch: Batch | None = None
) -> IngestCounts:
    """Write the records of an input that the tables do not have yet; raises PipelineError.

    `ingested_at` is when this ingest began, `late_before_us` what is late.
    """
    try:
        # Most failures are ours to tell, in a line: files are damaged or gone, or those entries of the topic.
        with tasks_fail_quietly(given.spark):
            return _write(store, given, ingested_at, late_before_us, batch)
    except PipelineError:
        raise
    except Exception as error:
        return _write(store, given.after(error), ingested_at, late_before_us, batch)


def _write(
    store: Store, given: Input, ingested_at: datetime, late_before_us: int | None, batch: Batch | None
) -> IngestCounts:
    with ExitStack() as stack:

        def stage(table: Table, frame: DataFrame) -> Staged:
            return stack.enter_context(store.stage(table, frame))

        records = given.records(late_before_us)
        seen = Observation()
        counts = (F.count(F.when(F.col("reason") == reason, 1)).alias(reason) for reason in REASONS)
        events = stage(EVENTS, events_of(records.observe(seen, F.count(F.lit(1)).alias("read"), *counts)))
        found = seen.get
        read = found.get("read") or 0
        quarantined = {reason: found[reason] for reason in REASONS if found.get(reason)}
        late = stage(LATE, late_of(records)) if "late" in quarantined else None
        others = quarantined_of(records.where("reason <> 'late'"), ingested_at)
        bad = stage(QUARANTINE, others) if quarantined.keys() - {"late"} else None
        all_of_them = _extent(events.frame)
        copies = (bad.frame.agg(F.sum("copies")).collect()[0][0] or 0) if bad else 0
        _require_balance(read, all_of_them.rows, copies + (late.frame.count() if late else 0), quarantined)
        with store.exclusive() as opened:
            fresh, extent = _without_duplicates(opened, stage, events, all_of_them)
            late, quarantined["late"] = _not_in_events(opened, stage, late)
            of_late = quarantined_of(late.frame, ingested_at) if late else None
            set_aside = _not_quarantined_before(opened, stage, bad, of_late)
            rows = {EVENTS.name: fresh, QUARANTINE.name: set_aside}
            opened.add({name: staged for name, staged in rows.items() if staged is not None}, batch)
        quarantined = {reason: count for reason, count in quarantined.items() if count}
        duplicates = read - sum(quarantined.values()) - extent.rows
        return IngestCounts(read, extent.rows, duplicates, quarantined, extent.lost, extent.newest_us or None)


def _require_balance(read: int, kept: int, set_aside: int, quarantined: Mapping[str, int]) -> None:
    """Check that all passes over the input saw the same records."""
    if (kept, set_aside) != (read - sum(quarantined.values()), sum(quarantined.values())):
        raise PipelineError(
            f"got {read} records, of which {kept} were kept and {set_aside} quarantined: the input changed while it was"
            " read; run again",
            ExitCode.FAILED,
        )


@dataclass(frozen=True, slots=True)
class _Extent:
    """The extent of some rows of `events`: their hours and times, how many they are and how many events were lost."""

    rows: int
    lost: int
    hours: tuple[tuple[Any, int], ...] = ()
    oldest_us: int = 0
    newest_us: int = 0


def _extent(events: DataFrame) -> _Extent:
    found = (
        events.groupBy("date", "hour")
        .agg(F.count("*"), F.sum("dropped_before"), F.min("ts_us"), F.max("ts_us"))
        .collect()
    )
    if not found:
        return _Extent(0, 0)
    days, hours, rows, lost, oldest, newest = zip(*found, strict=True)
    return _Extent(sum(rows), sum(lost), tuple(zip(days, hours, strict=True)), min(oldest), max(newest))


def _without_duplicates(
    opened: OpenStore, stage: Stage, events: Staged, extent: _Extent
) -> tuple[Staged | None, _Extent]:
    """Return the events that are new, each once, and their extent: none, or the staged ones themselves if all are."""
    if extent.rows == 0:
        return None, extent
    keys = events.frame.select(*EVENT_KEY)
    known = _known_keys(opened.read(EVENTS), extent)
    different = _different(keys)
    if different < extent.rows:
        keys = keys.distinct()
    new = different if known is None else _without(keys, known).count()
    if new == 0:
        return None, _Extent(0, 0)
    if new == extent.rows:
        return events, extent
    once = events.frame if different == extent.rows else _each_once(events.frame)
    fresh = stage(EVENTS, once if known is None else _without(once, known).select(*events.frame.columns))
    return fresh, _extent(fresh.frame)


def _different(keys: DataFrame) -> int:
    # A bit for each, 64 neighbours in a number: hardly anything is left to shuffle, where `distinct` moves every key.
    neighbours = keys.groupBy("proxy_id", "boot_id", F.shiftright("seq", 6))
    bits = neighbours.agg(F.expr("bit_or(shiftleft(1L, CAST(seq & 63 AS INT)))").alias("bits"))
    return int(bits.agg(F.sum(F.bit_count("bits"))).collect()[0][0] or 0)


def _each_once(events: DataFrame) -> DataFrame:
    # Among rows with the same key, the row with most lost events stays: each sink of a proxy counts its own.
    # To number them costs less than dropDuplicates, which aggregates sixty columns.
    number = F.row_number().over(Window.partitionBy(*EVENT_KEY).orderBy(F.desc("dropped_before"), "ts_us"))
    return events.withColumn("number", number).where("number = 1").drop("number")


def _without(rows: DataFrame, known: DataFrame) -> DataFrame:
    return rows.join(known, list(EVENT_KEY), "left_anti")


def _known_keys(table: DataFrame | None, extent: _Extent) -> DataFrame | None:
    """Return the keys in the table among which a duplicate could be: equal events have equal times."""
    if table is None or not extent.hours:
        return None
    if len(extent.hours) <= MOST_HOURS:
        where = reduce(or_, ((F.col("date") == day) & (F.col("hour") == hour) for day, hour in extent.hours))
    else:
        where = F.col("date").between(min(extent.hours)[0], max(extent.hours)[0])
    return table.where(where & F.col("ts_us").between(extent.oldest_us, extent.newest_us)).select(*EVENT_KEY)


def _not_in_events(opened: OpenStore, stage: Stage, late: Staged | None) -> tuple[Staged | None, int]:
    """Return the late rows whose events the table does not have, and their number; None without any."""
    if late is None:
        return None, 0
    extent = _extent(late.frame)
    known = _known_keys(opened.read(EVENTS), extent)
    if known is None:
        return late, extent.rows
    # Staged once more, or what is quarantined of them would be planned together with the events.
    new = stage(LATE, _without(late.frame, known).select(*late.frame.columns))
    rows = new.frame.count()
    return (new, rows) if rows else (None, 0)


def _not_quarantined_before(
    opened: OpenStore, stage: Stage, bad: Staged | None, late: DataFrame | None
) -> Staged | None:
    """Return what the table does not have yet; of a source that has grown since, the copies that came."""
    frames = [frame for frame in (bad.frame if bad else None, late) if frame is not None]
    if not frames:
        return None
    table = opened.read(QUARANTINE)
    rows = reduce(DataFrame.unionByName, frames)
    if table is None:
        return bad if late is None else stage(QUARANTINE, rows)
    known = table.groupBy(*QUARANTINE_KEY).agg(F.sum("copies").alias("known"))
    more = F.col("copies") - F.coalesce("known", F.lit(0))
    new = rows.join(known, list(QUARANTINE_KEY), "left").withColumn("copies", more).where("copies > 0")
    return stage(QUARANTINE, new.select(*rows.columns))
