"""Owns the scenarios of slow readers as data: quick clients beside them, and their own lists. Runs nothing."""

from __future__ import annotations

from typing import Final

from benchmarks.ladder.rows import Bound, Budget, Column, Ratio, Scenario

QUICK: Final = 800
SLOW: Final = 200
LIST_BYTES: Final = 10_000 * 102
# The p99 of quick clients beside clients that do not read, over that of the same storm without those.
MOST_TIMES: Final = 1.3

MIXED: Final = (
    Column("alone_p99_ms", "p99 without slow ones, ms"), Column("quick_p99_ms", "beside them"),
    Column("quick_ratio", "times", 2), Column("before_late", "served before those read"),
    Column("late_answered", "slow ones served"), Column("refused", "refused"), Column("lost", "lost"),
    Column("idle_rss_bytes", "idle RSS", mib=True), Column("peak_rss_bytes", "peak RSS", mib=True),
)  # fmt: skip


def slow_readers() -> dict[str, Scenario]:
    """Return the mixed storms, with clients that are new and with clients that have read before; and steady readers."""
    return {
        "mixed-storm": _mixed("that connect anew", ()),
        "mixed-storm-again": _mixed("that have had a list before", ("--again",)),
        "steady-readers": Scenario(
            "4,000 lists of 1 MB outstanding, receive buffers of 4 KiB set after connect, read for 60 s",
            "memory", ("01", "04s", "04"), "late-readers",
            ("--connections", "1000", "--depth", "4", "--late", "0", "--receive-buffer", "0", "--shrink-to", "4096",
             "--limit", "60"),
            timed=False, budget=Budget(1000, LIST_BYTES), optional=("04",), quantity="answered",
            ratios=(Ratio("04s", ("01",), 0.9, quantity="answered"), Ratio("04", ("01",), None, quantity="answered")),
            columns=(
                Column("answered", "ended"), Column("refused", "refused"), Column("seconds_to_end", "seconds", 1),
                Column("idle_rss_bytes", "idle RSS", mib=True), Column("peak_rss_bytes", "peak RSS", mib=True),
            ),
            unended=True,
        ),
    }  # fmt: skip


def _mixed(who: str, options: tuple[str, ...]) -> Scenario:
    return Scenario(
        f"{QUICK} quick clients {who} ask for a list of 1 MB each, beside {SLOW} that do not read for 8 s",
        "memory", ("04s", "04"), "mixed-storm",
        ("--connections", str(QUICK), "--slow", str(SLOW), "--depth", "1", *options),
        timed=False, repeats=9, columns=MIXED, budget=Budget(2 * QUICK + SLOW, LIST_BYTES),
        bounds=(
            Bound("p99 of quick clients, times that without slow ones", "quick_ratio", MOST_TIMES, typical=True),
            Bound("answers", "answered", 2 * QUICK + SLOW, at_most=False),
        ),
    )  # fmt: skip
