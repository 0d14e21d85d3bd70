"""Measure the replay kernel beside the least that a replay can be, at the recorded load and at ten times of it.

Every figure is processor time: the machine may be shared. The two take turns, so that a ratio is one of neighbours.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from benchmarks.ladder.estimate import estimate, paired_ratio
from benchmarks.ladder.verdict import check
from benchmarks.pipeline.kernel import fifo
from benchmarks.pipeline.rounds import Json
from pipeline.core.model import MIB, NEVER, Limits, Trace
from pipeline.replay.kernel import replay_many
from pipeline.replay.prepare import Prepared

REQUESTS: Final = 1_000_000
ROUNDS: Final = 5
LOADS: Final = (1, 10)
PLAIN: Final = "plain lines"
LEAST_OF_PLAIN: Final = 0.3
LIMITS: Final = Limits(heap_bytes=8 * MIB, direct_bytes=8 * MIB, heap_timeout_us=500_000, direct_timeout_us=500_000)
RULES: Final = {
    "all rules, first come first served": LIMITS,
    "all rules, by turns": replace(LIMITS, fairness="namespace"),
    "all rules, by turns, capped": replace(LIMITS, fairness="namespace", key_cap_percent=30),
    "no sharing of answers": replace(LIMITS, coalescing=False),
}


def run(quick: bool) -> Json:
    """Measure; a quick run takes a tenth of the requests, and two rounds."""
    requests, rounds = (REQUESTS // 10, 2) if quick else (REQUESTS, ROUNDS)
    made = trace(requests)
    prepared = Prepared.of(made)
    rows: Json = {}
    ratios: list[Json] = []
    checks: list[Json] = []
    for load in LOADS:
        ways: dict[str, Callable[[], object]] = {PLAIN: lambda load=load: fifo.replay(made, LIMITS, load)}  # type: ignore[misc]
        for name, limits in RULES.items():
            ways[name] = lambda limits=limits, load=load: replay_many(prepared, [limits], load)  # type: ignore[misc]
        found = _in_turns(ways, rounds)
        for name, row in found.items():
            row["requests_per_second"] = round(requests / row["cpu_seconds"]["median"])
            rows[f"{name}, load {load}"] = row
            print(f"  load {load}, {name}: {row['requests_per_second']:,} requests/s", flush=True)
        for name in RULES:
            ratio = paired_ratio(found[PLAIN]["runs"], found[name]["runs"])
            ratios.append({"over": name, "under": PLAIN, "load": load, **ratio.as_json()})
            what = f"speed, of {PLAIN}, load {load}"
            checks.append(check(what, name, ratio.median, LEAST_OF_PLAIN, at_most=False))
    return {
        "scenario": "pipeline-kernel",
        "title": f"the kernel: {requests:,} requests with all rules, and with none but two plain lines",
        "effort": {"requests": requests, "rounds": rounds},
        "rows": rows,
        "ratios": ratios,
        "checks": checks,
    }


def trace(requests: int, seconds_a_request: float = 0.002) -> Trace:
    """Make requests of 2,000 connections for 600 lists of a few KB to some MB, at four brokers."""
    chance = np.random.default_rng(1)
    question = np.minimum(chance.zipf(1.3, requests), 600).astype(np.int32) - 1
    size = (2 ** (11 + 10 * chance.random(600))).astype(np.int64)[question]

    def micros(most: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return chance.integers(most // 4, most, requests)

    return Trace(
        arrival_us=np.sort(chance.integers(0, int(requests * seconds_a_request * 1e6), requests)),
        question=question,
        share=question % 40,
        client=chance.integers(0, 2000, requests).astype(np.int32),
        broker=question % 4,
        estimate_bytes=size // 2,
        heap_bytes=size,
        direct_bytes=size,
        upstream_us=micros(40_000),
        hold_us=micros(2_000),
        write_us=(write_us := micros(60_000)),
        direct_us=write_us // 2,
        cancel_us=np.full(requests, NEVER, np.int64),
    )


def _in_turns(ways: dict[str, Callable[[], object]], rounds: int) -> Json:
    cold = {name: _seconds(way) for name, way in ways.items()}
    runs: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            runs[name].append(_seconds(way))
    return {
        name: {
            "title": name,
            "cpu_seconds": estimate(runs[name]).as_json(),
            "runs": runs[name],
            "cold_seconds": cold[name],
        }
        for name in ways
    }


def _seconds(way: Callable[[], object]) -> float:
    began = time.process_time()
    way()
    return time.process_time() - began
