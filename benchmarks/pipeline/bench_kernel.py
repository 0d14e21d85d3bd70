"""Measure the replay kernel beside the least that a replay can be, and print JSON.

Every figure is the best of some rounds in one process, by its processor time: the machine is shared.
Run: `python -m benchmarks.pipeline.bench_kernel [--requests N]`.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.pipeline import fifo_kernel
from pipeline.replay.kernel import Prepared, replay_many
from pipeline.replay.model import MIB, NEVER, Limits, Trace

ROUNDS = 3


def trace(requests: int, seconds_a_request: float = 0.002) -> Trace:
    """Make requests of 2,000 connections for 600 lists of a few KB to some MB, at four brokers."""
    chance = np.random.default_rng(1)
    question = np.minimum(chance.zipf(1.3, requests), 600).astype(np.int32) - 1
    size = (2 ** (11 + 10 * chance.random(600))).astype(np.int64)[question]

    def micros(most: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
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


def requests_a_second(requests: int, run: Callable[[], object]) -> float:
    run()
    best = min(_seconds(run) for _ in range(ROUNDS))
    return round(requests / best)


def _seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=1_000_000)
    requests = parser.parse_args().requests
    made = trace(requests)
    prepared = Prepared.of(made)
    limits = Limits(heap_bytes=8 * MIB, direct_bytes=8 * MIB, heap_timeout_us=500_000, direct_timeout_us=500_000)
    rules = {
        "all rules, fifo": limits,
        "without groups": replace(limits, coalescing=False),
        "by turns": replace(limits, fairness="namespace"),
        "by turns, capped": replace(limits, fairness="namespace", key_cap_percent=30),
    }
    figures: dict[str, float] = {}
    for load in (1, 10):
        plain = requests_a_second(requests, lambda load=load: fifo_kernel.replay(made, limits, load))  # type: ignore[misc]
        figures[f"plain lines, load {load}"] = plain
        for name, these in rules.items():
            rate = requests_a_second(requests, lambda these=these, load=load: replay_many(prepared, [these], load))  # type: ignore[misc]
            figures[f"{name}, load {load}"] = rate
            figures[f"{name}, load {load}, of plain"] = round(rate / plain, 2)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
