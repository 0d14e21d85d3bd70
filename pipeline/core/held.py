"""Whether an advice held, by the days on which its limits were in force. Pure.

Rule: an advice is judged at proxies that had exactly its limits, from the day of its last event on: by the share of
refused requests, and by the worst p99 of all waits of a day, against what was promised.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Held:
    """The fate of an advice: the days on which it was in force, their requests, and whether the promise was kept."""

    days: int
    requests: int
    refused: int
    wait_p99_us: float
    kept: bool

    @property
    def verdict(self) -> str:
        if not self.days:
            return "was not in force"
        return "held" if self.kept else "did not hold"


def held(advice: Row, days: Iterable[Row]) -> Held:
    """Return how an advice held on the days from its last event on, at proxies that had its limits."""
    since = datetime.fromtimestamp(advice["last_us"] / 1e6, UTC).date()
    mine = [
        day
        for day in days
        if _day(day["date"]) >= since
        and all(day[name] == advice[name] for name in ("heap_limit_bytes", "direct_limit_bytes"))
        and (advice["cluster"] is None or day["cluster"] == advice["cluster"])
    ]
    requests, refused = (sum(int(day[name]) for day in mine) for name in ("requests", "refused"))
    longest = max((float(day["wait_p99_us"]) for day in mine), default=0.0)
    kept = refused <= advice["max_refused"] * requests and longest <= advice["promised_wait_us"]
    return Held(len({_day(day["date"]) for day in mine}), requests, refused, longest, kept)


def _day(value: Any) -> date:
    return value.date() if isinstance(value, datetime) else value
