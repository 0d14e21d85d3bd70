"""The section about earlier advice: whether it held on the days on which it was in force, and how calibrations went.

Rule: a pure function from facts to a section. An advice is judged by its days alone; without any day on which
its limits were in force nothing is said but that.
"""

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from pipeline.core.held import held
from pipeline.report.facts import Facts
from pipeline.report.parts import Missing, Part, Row, cell, pair, rows_of, section, sheet
from pipeline.report.units import count, duration, share, shown, size

_MOST_ROWS: Final = 12


@section("earlier", "Did earlier advice hold")
def advice(facts: Facts) -> Iterator[Part]:
    """Show what became of earlier advice, and how far the replay was off each time."""
    if not len(facts.advices):
        yield Missing("No advice was given yet: run the job advise.")
        return
    days = rows_of(facts.days)
    judged = [row | {"held": held(row, days)} for row in rows_of(facts.advices)]
    in_force = [row for row in judged if row["held"].days]
    yield f"{count(len(judged))} times there was advice; {count(len(in_force))} of these were in force on some day."
    if in_force:
        yield _latest(in_force[0])
    # Most have one cluster, and give it no name.
    of = {"cluster": cell(shown, "cluster")} if any(row["cluster"] is not None for row in judged) else {}
    yield sheet(
        "Earlier advice, and the days on which its limits were in force",
        judged[:_MOST_ROWS],
        {
            "made": cell(_minute, "made_at"),
            **of,
            "heap": cell(size, "heap_limit_bytes"),
            "direct": cell(size, "direct_limit_bytes"),
            "load": cell("{} x".format, "load"),
            "promised": cell(duration, "promised_wait_us"),
            "days": lambda row: count(row["held"].days),
            "requests": lambda row: count(row["held"].requests),
            "refused": lambda row: _refused(row) if row["held"].requests else "",
            "worst p99": lambda row: duration(row["held"].wait_p99_us) if row["held"].days else "",
            "verdict": lambda row: row["held"].verdict,
        },
        words=("made", *of, "verdict"),
    )
    if len(facts.calibrations):
        yield sheet(
            "Earlier calibrations: recorded / simulated",
            rows_of(facts.calibrations.head(_MOST_ROWS)),
            {
                "made": cell(_minute, "made_at"),
                "requests": cell(count, "requests"),
                "error": lambda row: share(row["error"]) if pd.notna(row["error"]) else "none",
                "refused": pair(count, "refused"),
                "p99": pair(duration, "p99_us"),
                "machine late": cell(duration, "late_p99_us"),
                "imputed": cell(share, "imputed_share"),
            },
            words=("made",),
        )


def _latest(row: Row) -> str:
    found = row["held"]
    return (
        f"The latest of them, of {_minute(row['made_at'])}, {found.verdict}: {_refused(row)} of {count(found.requests)}"
        f" requests were refused on {count(found.days)} days, and on the worst of them 99 % of the answered ones waited"
        f" at most {duration(found.wait_p99_us)}, all waits together ({duration(row['promised_wait_us'])} were"
        " promised)."
    )


def _refused(row: Row) -> str:
    return share(row["held"].refused / max(1, row["held"].requests))


def _minute(made_at: Any) -> str:
    return f"{pd.Timestamp(made_at):%Y-%m-%d %H:%M}"
