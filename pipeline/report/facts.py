"""Facts that were gathered for a page: figures and small data frames. No pyspark here."""

from dataclasses import dataclass
from typing import Final

import pandas as pd

from pipeline.core.calibration import PROMISED_MS
from pipeline.report.clock import Clock
from pipeline.report.parts import Row, rows_of

# Measures of `top_costs` that the page shows, by what it calls them.
COST_MEASURES: Final = {
    "heap_byte_seconds": "heap", "direct_byte_seconds": "direct", "requests": "requests", "refused": "refused",
}  # fmt: skip
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
    heap_limit: int
    direct_limit: int
    # Limits are those of the last event; other proxies may have others.
    limits_differ: bool = False

    @property
    def refused(self) -> int:
        """Count the requests that were not answered, for whatever reason."""
        return self.requests - self.answered


@dataclass(frozen=True, slots=True)
class Slowed:
    """The topics that were slowed longest, and the hours; `topic_count` counts all topics. Columns: see `gather`.

    `forgotten_count`: topics that were forgotten, each time.
    """

    topics: pd.DataFrame
    hours: pd.DataFrame
    topic_count: int = 0
    forgotten_count: int = 0


@dataclass(frozen=True, slots=True)
class Choices:
    """The data of charts for one namespace or proxy: `cells` by namespace, proxy, chart, series and bin of the clock.

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
    overview: Overview
    memory: pd.DataFrame
    fullness: pd.DataFrame
    waits: pd.DataFrame
    endings: pd.DataFrame
    choices: Choices | None
    quarantine: pd.DataFrame
    top_costs: pd.DataFrame
    sharing: pd.DataFrame
    # The largest; `storm_count` counts all.
    storms: pd.DataFrame
    storm_count: int
    members: pd.DataFrame
    whatif: pd.DataFrame
    calibration: pd.DataFrame
    advice: pd.DataFrame
    # Results of earlier runs, the latest first, and the limits in force by day.
    calibrations: pd.DataFrame
    advices: pd.DataFrame
    days: pd.DataFrame
    # None: nobody has looked.
    slowed: Slowed | None
    fragment: str | None = None
    no_advice: str = ""
    promised_us: float = PROMISED_MS * 1000
    # The events that were chosen, in words; empty for all.
    period: str = ""

    @property
    def whole_waits(self) -> Row | None:
        """Return the row of `waits` for the whole time, if anybody was answered."""
        return next(iter(rows_of(self.waits[self.waits["bin"].isna()])), None)
