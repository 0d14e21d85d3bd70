"""What was gathered for a page: figures and small data frames. No pyspark here."""

from dataclasses import dataclass, field
from typing import Final

import pandas as pd

from pipeline.core.calibration import PROMISED_MS
from pipeline.report.clock import Clock

__all__ = ["ALL", "Choices", "Facts", "Overview", "Slowed"]

# Where a cell of `Choices` is of all namespaces, or of all proxies.
ALL: Final = -1


@dataclass(frozen=True, slots=True)
class Overview:
    """Totals of the table `events`; requests are topic lists, watch frames are counted apart; sizes in bytes."""

    clock: Clock
    begin_us: int
    end_us: int
    requests: int
    answered: int
    watch_frames: int
    dropped: int
    proxies: int
    starts: int
    tenants: int
    namespaces: int
    coalesced: int
    largest_heap: int | None
    largest_direct: int | None
    heap_limit: int
    direct_limit: int
    # Limits are those of the last event; other proxies may have others.
    limits_differ: bool = False

    @property
    def refused(self) -> int:
        """Count the requests that were not answered, for whatever reason."""
        return self.requests - self.answered


def _nothing() -> pd.DataFrame:
    return pd.DataFrame()


@dataclass(frozen=True, slots=True)
class Slowed:
    """Who was slowed: the topics that were longest, and the hours; `topic_count` counts all. Columns: see `gather`.

    `forgotten_count`: topics that were forgotten, each time.
    """

    topics: pd.DataFrame
    hours: pd.DataFrame
    topic_count: int = 0
    forgotten_count: int = 0


@dataclass(frozen=True, slots=True)
class Choices:
    """What charts show of one namespace or proxy: `cells` by namespace, proxy, chart, series and bin of the clock.

    Namespaces and proxies are numbers: places in the tuples, one more for all that are not named, `ALL` for all. Charts
    and series: `heap`, `direct` (held, waiting and limit, MiB), `fullness` (heap, direct), `waits` (p50, p95, p99,
    seconds) and `endings` (reasons, requests).
    """

    clock: Clock
    namespaces: tuple[str, ...]
    proxies: tuple[str, ...]
    cells: pd.DataFrame


@dataclass(frozen=True, slots=True)
class Facts:
    """The frames of a page; empty where a job has not run yet or found nothing. Columns: see `gather`."""

    out: str
    overview: Overview | None = None
    memory: pd.DataFrame = field(default_factory=_nothing)
    fullness: pd.DataFrame = field(default_factory=_nothing)
    waits: pd.DataFrame = field(default_factory=_nothing)
    endings: pd.DataFrame = field(default_factory=_nothing)
    quarantine: pd.DataFrame = field(default_factory=_nothing)
    top_costs: pd.DataFrame = field(default_factory=_nothing)
    sharing: pd.DataFrame = field(default_factory=_nothing)
    # The largest; `storm_count` counts all.
    storms: pd.DataFrame = field(default_factory=_nothing)
    storm_count: int = 0
    members: pd.DataFrame = field(default_factory=_nothing)
    whatif: pd.DataFrame = field(default_factory=_nothing)
    calibration: pd.DataFrame = field(default_factory=_nothing)
    advice: pd.DataFrame = field(default_factory=_nothing)
    # What earlier runs said, the latest first, and the limits in force by day.
    calibrations: pd.DataFrame = field(default_factory=_nothing)
    advices: pd.DataFrame = field(default_factory=_nothing)
    days: pd.DataFrame = field(default_factory=_nothing)
    # None: nobody has looked.
    slowed: Slowed | None = None
    marks: pd.DataFrame = field(default_factory=_nothing)
    choices: Choices | None = None
    fragment: str | None = None
    no_advice: str = ""
    promised_us: float = PROMISED_MS * 1000
