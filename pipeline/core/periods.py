"""Options that choose events: `--since` and `--until` by their arrival, `--cluster` by where they are from.

Spans of time as options, too: `--window 1m`.
"""

import argparse
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.core.errors import PipelineError

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class Period:
    """From `since_us` on and before `until_us`, microseconds since 1970; of one cluster. None is no bound."""

    since_us: int | None = None
    until_us: int | None = None
    cluster: str | None = None

    def __str__(self) -> str:
        of = "" if self.cluster is None else f" of the cluster {self.cluster}"
        return f"{_shown(self.since_us, 'the beginning')} to {_shown(self.until_us, 'the end')}{of}"

    def touches(self, day: date) -> bool:
        """Return whether some of a day is in it."""
        late = self.since_us is not None and day < _date(self.since_us)
        early = self.until_us is not None and day > _date(self.until_us - 1)
        return not (late or early)


ALWAYS: Final = Period()


def add_days(parser: argparse.ArgumentParser) -> None:
    """Declare `--since` and `--until`."""
    parser.add_argument(
        "--since", metavar="TIME", help="only events that arrived then (ISO 8601, UTC; or 30d: so long ago) or later"
    )
    parser.add_argument("--until", metavar="TIME", help="only events that arrived earlier")


def add_period(parser: argparse.ArgumentParser) -> None:
    """Declare `--since`, `--until` and `--cluster`."""
    add_days(parser)
    parser.add_argument("--cluster", metavar="NAME", help="only events of proxies with this clusterName")


def given_period(options: argparse.Namespace) -> Period:
    """Read `--since`, `--until` and `--cluster`; raises PipelineError for what is no time, or holds nothing."""
    cluster = getattr(options, "cluster", None)
    period = Period(_micros("--since", options.since), _micros("--until", options.until), cluster)
    if period.since_us is not None and period.until_us is not None and period.since_us >= period.until_us:
        given = f"{options.since} and {options.until}"
        raise PipelineError(f"--since and --until: got {given}, which hold nothing; expected --since to be earlier")
    return period


def window_seconds(option: str, word: str) -> int:
    """Read the length of a window; raises PipelineError unless a whole number of them makes a day."""
    found = re.fullmatch(r"([1-9][0-9]{0,5})([smhd])", word)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not seconds or DAY_SECONDS % seconds:
        raise PipelineError(f"{option}: got {word!r}, expected a part of a day such as 10s, 1m, 15m, 1h or 1d")
    return seconds


def in_period(events: DataFrame, period: Period) -> DataFrame:
    """Choose the events of a period; days outside of it are not read."""
    events = whole_days(events, period)
    if period.since_us is not None:
        events = events.where(F.col("ts_us") >= period.since_us)
    return events if period.until_us is None else events.where(F.col("ts_us") < period.until_us)


def whole_days(events: DataFrame, period: Period) -> DataFrame:
    """Choose the events of all days that a period touches, from their beginning to their end."""
    if period.since_us is not None:
        events = events.where(F.col("date") >= F.lit(_date(period.since_us)))
    if period.until_us is not None:
        events = events.where(F.col("date") <= F.lit(_date(period.until_us - 1)))
    return of_cluster(events, period.cluster)


def of_cluster(rows: DataFrame, cluster: str | None) -> DataFrame:
    """Choose the rows of a cluster, the empty one those of proxies that name none; None is no choice."""
    return rows if cluster is None else rows.where(F.coalesce("cluster", F.lit("")) == cluster)


def _micros(option: str, word: str | None, now: datetime | None = None) -> int | None:
    if word is None:
        return None
    if ago := re.fullmatch(r"([1-9][0-9]{0,4})([smhd])", word):
        span = timedelta(seconds=int(ago[1]) * _UNITS[ago[2]])
        return ((now or datetime.now(UTC)) - _EPOCH - span) // timedelta(seconds=1) * 1_000_000
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise PipelineError(f"{option}: got {word!r}, expected a time such as 2026-01-01T12:00") from None
    try:
        aware = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        raise PipelineError(f"{option}: got {word!r}, expected a time of the years 1 to 9999 in UTC") from None
    return (aware - _EPOCH) // timedelta(microseconds=1)


def _date(us: int) -> date:
    # No event is from before 1970, and one microsecond before the year 1 has no date.
    return (_EPOCH + timedelta(microseconds=max(us, 0))).date()


def _shown(us: int | None, otherwise: str) -> str:
    return otherwise if us is None else f"{(_EPOCH + timedelta(microseconds=us)).replace(tzinfo=None)} UTC"
