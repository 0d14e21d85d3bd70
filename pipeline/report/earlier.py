"""The section about earlier advice: whether it held on the days on which it was in force, and how calibrations went.

Rule: a pure function from facts to a section. What is said of an advice is what its days say; without any day on which
its limits were in force nothing is said but that.
"""

from typing import Any, Final

import pandas as pd

from pipeline.core.held import Held, held
from pipeline.report.facts import Facts
from pipeline.report.parts import Section, Sheet
from pipeline.report.units import count, duration, share, size

__all__ = ["advice"]

_MOST_ROWS: Final = 12
Row = dict[str, Any]


def advice(facts: Facts) -> Section:
    """Show what became of earlier advice, and how far the replay was off each time."""
    section = Section("earlier", "Did earlier advice hold")
    if not len(facts.advices):
        return Section(section.name, section.title, missing="No advice was given yet: run the job advise.")
    days = _rows(facts.days)
    judged = [(row, held(row, days)) for row in _rows(facts.advices)]
    in_force = [each for each in judged if each[1].days]
    sentences = [
        f"{count(len(judged))} times there was advice; {count(len(in_force))} of these were in force on some day.",
        *([_latest(*in_force[0])] if in_force else []),
    ]
    sheets = [_advice_sheet(judged[:_MOST_ROWS])]
    if len(facts.calibrations):
        sheets.append(_calibration_sheet(facts.calibrations.head(_MOST_ROWS)))
    return Section(section.name, section.title, tuple(sentences), sheets=tuple(sheets))


def _latest(row: Row, found: Held) -> str:
    refused = share(found.refused / max(1, found.requests))
    return (
        f"The latest of them, of {_moment(row)}, {found.verdict}: {refused} of {count(found.requests)} requests were"
        f" refused on {count(found.days)} days, and on the worst of them 99 % of the answered ones waited at most"
        f" {duration(found.wait_p99_us)}, all waits together ({duration(row['promised_wait_us'])} were promised)."
    )


def _advice_sheet(judged: list[tuple[Row, Held]]) -> Sheet:
    rows = tuple(
        (
            _moment(row),
            size(row["heap_limit_bytes"]),
            size(row["direct_limit_bytes"]),
            f"{row['load']} x",
            duration(row["promised_wait_us"]),
            count(found.days),
            count(found.requests),
            share(found.refused / found.requests) if found.requests else "",
            duration(found.wait_p99_us) if found.days else "",
            found.verdict,
        )
        for row, found in judged
    )
    headers = ("made", "heap", "direct", "load", "promised", "days", "requests", "refused", "worst p99", "verdict")
    return Sheet(
        "Earlier advice, and the days on which its limits were in force", headers, rows, frozenset(range(1, 9))
    )


def _calibration_sheet(frame: pd.DataFrame) -> Sheet:
    rows = tuple(
        (
            _moment(row),
            count(row["requests"]),
            share(row["error"]) if pd.notna(row["error"]) else "none",
            f"{count(row['recorded_refused'])} / {count(row['simulated_refused'])}",
            f"{duration(row['recorded_p99_us'])} / {duration(row['simulated_p99_us'])}",
            duration(row["late_p99_us"]),
            share(row["imputed_share"]),
        )
        for row in _rows(frame)
    )
    headers = ("made", "requests", "error", "refused", "p99", "machine late", "imputed")
    return Sheet("Earlier calibrations: recorded / simulated", headers, rows, frozenset(range(1, 7)))


def _moment(row: Row) -> str:
    return f"{pd.Timestamp(row['made_at']):%Y-%m-%d %H:%M}"


def _rows(frame: pd.DataFrame) -> list[Row]:
    return [{str(name): _value(value) for name, value in row.items()} for row in frame.to_dict("records")]


def _value(value: Any) -> Any:
    return None if isinstance(value, float) and pd.isna(value) else value
