"""Measure `usage`: runs of three engines in turn, on a million events and on ten, with equal results."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.ladder.estimate import estimate, paired_ratio
from benchmarks.ladder.verdict import check
from benchmarks.pipeline.process import EngineProcess
from benchmarks.pipeline.usage.compare import differences
from pipeline.generate.output import write_parquet
from pipeline.generate.settings import GenerateSettings

Json = dict[str, Any]

HERE: Final = "benchmarks.pipeline.usage"
ENGINES: Final = {"spark": "Spark, local[2]", "polar": "Polars, 2 threads", "duck": "DuckDB, 2 threads"}
SIZES: Final = (1_000_000, 10_000_000)
ROUNDS: Final = 7
MOST_TIMES_PEER: Final = 3.0
# Ten times the events may cost ten times as much, and a quarter more for what does not fit the caches.
MOST_TIMES_LINEAR: Final = 1.25


def run(quick: bool) -> Json:
    """Measure; a quick run takes the smaller size only."""
    sizes, rounds = (SIZES[:1], 2) if quick else (SIZES, ROUNDS)
    rows: Json = {}
    ratios: list[Json] = []
    checks: list[Json] = []
    for size in sizes:
        found = _measure(size, rounds)
        rows |= {f"{name}, {size:,} events": row for name, row in found.items()}
        best = min(("polar", "duck"), key=lambda name: float(found[name]["seconds"]["median"]))
        ratio = paired_ratio(found["spark"]["runs"], found[best]["runs"])
        ratios.append({"over": "spark", "under": best, "events": size, **ratio.as_json()})
        bound = MOST_TIMES_PEER if size == SIZES[-1] else None
        checks.append(check(f"seconds, times {ENGINES[best]}, {size:,} events", "spark", ratio.median, bound))
        for peer in ("polar", "duck"):
            checks.append(check(f"differences to spark, {size:,} events", peer, len(found[peer]["differs"]), 0))
    if len(sizes) == 2:
        small, large = (rows[f"spark, {size:,} events"]["seconds"]["median"] for size in sizes)
        growth = large / small / (sizes[1] / sizes[0])
        checks.append(check("cost from a million to ten, times linear", "spark", growth, MOST_TIMES_LINEAR))
    return {
        "scenario": "pipeline-usage",
        "title": "usage: who costs how much, four tables from the table `events`",
        "effort": {"sizes": list(sizes), "rounds": rounds},
        "rows": rows,
        "ratios": ratios,
        "checks": checks,
    }


def _measure(size: int, rounds: int) -> Json:
    with tempfile.TemporaryDirectory(prefix="bench-usage-") as name, ExitStack() as stack:
        place = Path(name)
        write_parquet(GenerateSettings(size), place, lambda _: None)
        print(f"  {size:,} events are there", flush=True)
        workers = {engine: _start(stack, engine, place) for engine in ENGINES}
        runs: dict[str, list[float]] = {engine: [] for engine in ENGINES}
        cold = {engine: worker.run() for engine, worker in workers.items()}
        for number in range(rounds):
            order = list(workers) if number % 2 else list(reversed(workers))
            for engine in order:
                runs[engine].append(workers[engine].run())
            print(f"  round {number + 1}: { {engine: round(runs[engine][-1], 2) for engine in ENGINES} }", flush=True)
        return {
            engine: {
                "title": title,
                "seconds": estimate(runs[engine]).as_json(),
                "runs": runs[engine],
                "cold_seconds": cold[engine],
                "peak_rss_bytes": workers[engine].peak_rss_bytes,
                "differs": [] if engine == "spark" else differences(place / "spark", place / engine),
            }
            for engine, title in ENGINES.items()
        }


def _start(stack: ExitStack, engine: str, place: Path) -> EngineProcess:
    out = place / engine
    out.mkdir()
    return stack.enter_context(EngineProcess([f"{HERE}.{engine}", str(place / "events"), str(out)]))
