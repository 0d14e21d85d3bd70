"""Measure whether advice holds: five pairs of storms on a real proxy, the second under what the first has advised."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from benchmarks.ladder.verdict import check
from benchmarks.pipeline.holds.scenarios import PROMISED_US, SCENARIOS, tried
from benchmarks.pipeline.holds.storms import p99_us, refused
from benchmarks.pipeline.rounds import Json
from pipeline.core.model import MIB
from pipeline.running.session import build_session

QUICK_PART: Final = 1 / 3
# A busy machine is told apart from the limiter's waits; what is left of the error must not be the promise itself.
MAX_ERROR: Final = 0.5


def run(quick: bool) -> Json:
    """Try every scenario; a quick run has a third of the clients."""
    spark = build_session("bench holds", "local[2]", {"spark.driver.memory": "1g"})
    rows: Json = {}
    checks: list[Json] = []
    try:
        for name, whole in SCENARIOS.items():
            scenario = whole.sized(QUICK_PART) if quick else whole
            with tempfile.TemporaryDirectory(prefix="bench-holds-") as place:
                found = tried(spark, scenario, Path(place), max_error=MAX_ERROR)
            limits = found.summary.advice.limits
            print(f"  {name}: heap {limits.heap_bytes // MIB} MiB, direct {limits.direct_bytes // MIB} MiB", flush=True)
            rows[name] = {
                "title": f"{scenario.title}: {scenario.recorded.connections} clients recorded,"
                f" {scenario.fleet * scenario.judged.connections} judged",
                "recorded_refused": refused(found.before),
                "judged_refused": refused(found.after),
                "calibration_error": found.summary.advice.calibration.error,
                "advised_heap_mib": limits.heap_bytes // MIB,
                "advised_direct_mib": limits.direct_bytes // MIB,
                "judged_p99_ms": p99_us(found.after) / 1000,
            }
            asked = scenario.fleet * scenario.judged.connections
            checks.append(check(f"refused of {asked} requests, {name}", "advice", refused(found.after), 0))
            answered = sum(event["outcome"] == "ok" for event in found.after)
            checks.append(check(f"answered of {asked}, {name}", "advice", answered / asked, 1, at_most=False))
            checks.append(
                check(f"p99 of the waits, of the promise, {name}", "advice", p99_us(found.after) / PROMISED_US, 1)
            )
    finally:
        spark.stop()
    return {
        "scenario": "pipeline-holds",
        "title": "advice on a real proxy: one storm recorded, another under what was advised",
        "effort": {"scenarios": len(SCENARIOS), "quick": quick},
        "rows": rows,
        "ratios": [],
        "checks": checks,
    }
