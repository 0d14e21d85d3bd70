"""Measure `whatif`: 24 scenarios by Spark and by Polars in turn, with one kernel and equal results."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from benchmarks.ladder.estimate import paired_ratio
from benchmarks.ladder.verdict import check
from benchmarks.pipeline.rounds import SIZES, Json, events_of, growth, take_turns
from benchmarks.pipeline.whatif import ROW, SCENARIOS

ENGINES: Final = {"spark": "Spark, local[2]", "polar": "Polars and the same kernel, 2 threads"}
MODULES: Final = {engine: f"benchmarks.pipeline.whatif.{engine}" for engine in ENGINES}
# A run on ten million events takes minutes.
ROUNDS: Final = (3, 1)
LEAST_OF_PEER: Final = 0.9


def run(quick: bool) -> Json:
    """Measure; a quick run takes a tenth of the events, and a round of each size."""
    sizes, rounds = [size // 10 if quick else size for size in SIZES], (1, 1) if quick else ROUNDS
    rows: Json = {}
    ratios: list[Json] = []
    checks: list[Json] = []
    for size, count in zip(sizes, rounds, strict=True):
        found, differs = _measure(size, count)
        for name, row in found.items():
            row["simulated_per_second"] = round(size * len(SCENARIOS) / row["seconds"]["median"])
            rows[f"{name}, {size:,} events"] = row
        # Speed, not time: the peer's seconds are above.
        ratio = paired_ratio(found["polar"]["runs"], found["spark"]["runs"])
        ratios.append({"over": "spark", "under": "polar", "events": size, **ratio.as_json()})
        of_peer = f"speed, of {ENGINES['polar']}, {size:,} events"
        checks.append(check(of_peer, "spark", ratio.median, LEAST_OF_PEER, at_most=False))
        checks.append(check(f"differences to spark, {size:,} events", "polar", differs, 0))
    return {
        "scenario": "pipeline-whatif",
        "title": f"whatif: {len(SCENARIOS)} scenarios over all requests of the table `events`",
        "effort": {"sizes": sizes, "rounds": list(rounds), "scenarios": len(SCENARIOS)},
        "rows": rows,
        "ratios": ratios,
        "checks": [*checks, growth("spark", rows, sizes)],
    }


def _measure(size: int, rounds: int) -> tuple[Json, int]:
    source = events_of(size)
    with tempfile.TemporaryDirectory(prefix="bench-whatif-") as name:
        place = Path(name)
        rows = take_turns(MODULES, ENGINES, source, place, rounds)
        left, right = (pq.read_table(place / engine / "whatif.parquet").select(ROW).to_pylist() for engine in ENGINES)
        assert len(left) == len(right) == len(SCENARIOS)
        return rows, sum(one != other for one, other in zip(left, right, strict=True))
