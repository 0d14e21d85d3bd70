"""What a soak has to show, and whether it did. Values in, a verdict out.

Rule: growth is judged between the first quiet moment, after every action has run, and the last. A count may differ by
what a cache or a pool of connections keeps; a leak of one object in each fiftieth action is above that in a run of an
hour.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.soak.slope import Slope, slope

MOST_BYTES_AN_HOUR: Final = 4_000_000
# So long a soak tells a slower growth from noise.
LONG_MINUTES: Final = 360.0
MOST_BYTES_AN_HOUR_OF_A_LONG_ONE: Final = 1_000_000
# The rest is the way to the level at which the process stays.
JUDGED_PART: Final = 0.75
# Below this a slope says nothing.
LEAST_MINUTES: Final = 30.0
OBJECTS_MORE: Final = 64
OBJECTS_MORE_PART: Final = 0.02
# Threads that begin with the first list on disk (two that write, two that read) or the first file read, and stay.
POOLED_THREADS: Final = 6
# Empty pipes that the native engine keeps: four of each of its threads, two descriptors each.
KEPT_PIPES: Final = 4 * 2 * 8


@dataclass(frozen=True)
class Sample:
    """The process at one moment under load."""

    seconds: float
    resident_bytes: int
    descriptors: int
    threads: int


@dataclass(frozen=True)
class Quiet:
    """The process without a client: what is not zero, and what there is of the rest."""

    seconds: float
    resident_bytes: int
    descriptors: Mapping[str, int]
    threads: int
    books: Mapping[str, int]
    tasks: Mapping[str, int]
    objects: Mapping[str, int]
    internal_errors: Mapping[str, int]

    @property
    def open_accounts(self) -> dict[str, int]:
        """Name what should be zero and is not."""
        return {name: value for name, value in self.books.items() if value}


@dataclass
class Record:
    """Everything that a soak saw."""

    samples: list[Sample] = field(default_factory=list)
    quiet: list[Quiet] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    reloads: int = 0


def grown(first: Quiet, last: Quiet) -> list[str]:
    """Say what there is more of at the last moment than at the first."""
    found = [f"{name}: {value}, expected 0" for name, value in last.open_accounts.items()]
    if last.threads > first.threads + POOLED_THREADS:
        found.append(f"threads: {first.threads} before, {last.threads} after")
    for kind, before, after in _more(first, last, "descriptors"):
        if kind != "pipe" or after > KEPT_PIPES:
            found.append(f"descriptors of {kind}: {before} before, {after} after")
    found += [f"tasks of {name}: {before} before, {after} after" for name, before, after in _more(first, last, "tasks")]
    for name, before, after in _more(first, last, "objects"):
        if after - before > OBJECTS_MORE + OBJECTS_MORE_PART * before:
            found.append(f"objects of {name}: {before} before, {after} after")
    return found


def _more(first: Quiet, last: Quiet, what: str) -> list[tuple[str, int, int]]:
    before: Mapping[str, int] = getattr(first, what)
    after: Mapping[str, int] = getattr(last, what)
    return [(name, before.get(name, 0), count) for name, count in after.items() if count > before.get(name, 0)]


def judged(record: Record) -> list[Sample]:
    """Return the samples of the last three quarters."""
    if not record.samples:
        return []
    begin = record.samples[-1].seconds * (1 - JUDGED_PART)
    return [sample for sample in record.samples if sample.seconds >= begin]


def growth(record: Record) -> Slope:
    """Return how fast the resident memory grew over the judged part, in bytes an hour."""
    samples = judged(record)
    return slope([sample.seconds / 3600 for sample in samples], [float(sample.resident_bytes) for sample in samples])


def most_bytes_an_hour(minutes: float) -> int:
    """Return how fast the resident memory may grow in a soak of so many minutes."""
    return MOST_BYTES_AN_HOUR_OF_A_LONG_ONE if minutes >= LONG_MINUTES else MOST_BYTES_AN_HOUR


def broken(record: Record, actions: Sequence[str], minutes: float) -> list[str]:
    """List the promises that do not hold."""
    found = [f"{name}: ended well {record.done.get(name, 0)} times" for name in actions if not record.done.get(name)]
    found += [f"failed {count} times: {text}" for text, count in record.failed.items()]
    first, last = record.quiet[0], record.quiet[-1]
    found += grown(first, last)
    found += [f"internal error {name}: {count} times" for name, count in last.internal_errors.items()]
    most = most_bytes_an_hour(minutes)
    if minutes >= LEAST_MINUTES and (steep := growth(record)).at_most > most:
        found.append(
            f"memory grows by up to {steep.at_most / 1e6:.2f} MB/h (95 %), expected at most {most / 1e6:.2f} MB/h"
        )
    return found


def report(record: Record, actions: Sequence[str], minutes: float) -> dict[str, Any]:
    """Return the figures and the verdict, ready for JSON."""
    steep, wrong = growth(record), broken(record, actions, minutes)
    return {
        "kept": not wrong,
        "broken": wrong,
        "minutes": minutes,
        "actions": record.done,
        "failed": record.failed,
        "reloads": record.reloads,
        "quiet": [quiet.resident_bytes for quiet in record.quiet],
        "bytes_an_hour": round(steep.per_hour),
        # Infinity is no JSON: too few samples for a bound.
        "bytes_an_hour_at_most": round(steep.at_most) if steep.blocks >= 5 else None,
        "samples": [[round(each.seconds), each.resident_bytes, each.descriptors] for each in record.samples],
    }
