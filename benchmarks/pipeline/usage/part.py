"""Measure `usage`: runs of three engines in turn, on a million events and on ten, with equal results."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from benchmarks.ladder.estimate import paired_ratio
from benchmarks.ladder.verdict import check
from benchmarks.pipeline.rounds import SIZES, Json, events_of, growth, take_turns
from benchmarks.pipeline.usage.compare import differences

ENGINES: Final = {
    "spark": "usage, local[2]",
    "polar": "Polars, 2 threads",
    "duck": "DuckDB, 2 threads",
}
MODULES: Final = {engine: f"benchmarks.pipeline.usage.{engine}" for engine in ENGINES}
PEERS: Final = ("polar", "duck")
ROUNDS: Final = 5
# A bound at the larger size; at the smaller one the start of Spark's jobs is most of the time, with a bound of its own.
MOST_TIMES_PEER: Final = 2.5
MOST_SECONDS: Final = 3.0


def run(quick: bool) -> Json:
    """Measure; a quick run takes a tenth of the events, and two rounds."""
    sizes, rounds = [size // 10 if quick else size for size in SIZES], 2 if quick else ROUNDS
    rows: Json = {}
    ratios: list[Json] = []
    checks: list[Json] = []
    for size in sizes:
        found = _measure(size, rounds)
        rows |= {f"{name}, {size:,} events": row for name, row in found.items()}
        best = min(PEERS, key=lambda name: float(found[name]["seconds"]["median"]))
        ratio = paired_ratio(found["spark"]["runs"], found[best]["runs"])
        ratios.append({"over": "spark", "under": best, "events": size, **ratio.as_json()})
        if size == sizes[-1]:
            of_peer = f"seconds, times {ENGINES[best]}, {size:,} events"
            checks.append(check(of_peer, "spark", ratio.median, MOST_TIMES_PEER))
        else:
            seconds = float(found["spark"]["seconds"]["median"])
            checks.append(check(f"seconds, {size:,} events", "spark", seconds, MOST_SECONDS))
        for peer in PEERS:
            checks.append(check(f"differences to spark, {size:,} events", peer, len(found[peer]["differs"]), 0))
    return {
        "scenario": "pipeline-usage",
        "title": "usage: who costs how much, four tables from the table `events`",
        "effort": {"sizes": sizes, "rounds": rounds},
        "rows": rows,
        "ratios": ratios,
        "checks": [*checks, growth("spark", rows, sizes)],
    }


def _measure(size: int, rounds: int) -> Json:
    source = events_of(size)
    with tempfile.TemporaryDirectory(prefix="bench-usage-") as name:
        place = Path(name)
        rows = take_turns(MODULES, ENGINES, source, place, rounds)
        for engine, row in rows.items():
            row["differs"] = [] if engine == "spark" else differences(place / "spark", place / engine)
        return rows
