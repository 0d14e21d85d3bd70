"""Facts that were gathered for a page: figures, rows of tables and small data frames. No pyspark here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from pipeline.core.calibration import PROMISED_MS
from pipeline.report.clock import Clock
from pipeline.report.parts import Row

# What is ranked: sums of columns of `usage`, by what the page calls them.
MEASURES: Final = {
    "heap_byte_seconds": "heap",
    "direct_byte_seconds": "direct",
    "requests": "requests",
    "refused": "refused",
    "memory_wait_seconds": "waited",
}
MOST_TOP: Final = 10
# Sums over all of these are told, too.
SAVED: Final = ("coalesced", "questions_saved", "upstream_bytes_saved", "heap_byte_seconds_saved")
# The dimension of a ranking in which everybody is one.
EVERYBODY: Final = "all"


@dataclass(frozen=True, slots=True)
class Overview:
    """Totals of the events of a cluster; requests are topic lists, watch frames are counted apart; sizes in bytes."""

    clock: Clock
    cluster: str
    begin_us: int
    end_us: int
    requests: int
    answered: int
    longest_wait_us: int
    heap_wait_us: int
    direct_wait_us: int
    watch_frames: int
    dropped: int
    proxies: int
    starts: int
    namespaces: int
    heap_limit: int
    direct_limit: int
    # Limits are those of the last event; these or other proxies had others before.
    limits_differ: bool = False

    @property
    def unanswered(self) -> int:
        """Count the requests that were not answered, for whatever reason."""
        return self.requests - self.answered


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the events show over time.

    Columns: of `memory` bin, at_ms, kind, held_mib, waiting_mib, limit_mib; of `waits` bin, at_ms, what (p50, p95,
    p99), value (seconds); of `endings` bin, reason, requests. `peaks` has the most bytes that lists, or watch frames,
    held at one proxy at one time, by (whose, kind); `p50_us` and `p99_us` are of all requests, None without any.
    """

    memory: pd.DataFrame
    waits: pd.DataFrame
    endings: pd.DataFrame
    peaks: Mapping[tuple[str, str], int]
    p50_us: float | None
    p99_us: float | None


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of what other jobs have found; None where they have not run.

    `rankings` are by dimension, measure and rank; `storms` and `slowed` are the largest, each with `of_all`, their
    number. Columns: see `gather`.
    """

    rankings: Sequence[Row] | None
    storms: Sequence[Row] | None
    slowed: Sequence[Row] | None
    quarantine: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Advised:
    """Rows of `advice` and `calibration`, the wait of the target, lines of proxy.conf; or why there is no advice."""

    points: Sequence[Row] = ()
    calibration: Sequence[Row] = ()
    target_us: float = PROMISED_MS * 1000
    fragment: str | None = None
    none_since: str = ""

    @property
    def chosen(self) -> Row | None:
        """Return the point that is the advice, if there is one."""
        return next((row for row in self.points if row["chosen"]), None)


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a page shows; `period` are the events that were chosen, in words, empty for all."""

    overview: Overview
    recorded: Recorded
    found: Found
    advised: Advised
    period: str = ""
