"""Random traces for the replay: small numbers, so that much happens at once and lines are full."""

from dataclasses import dataclass, replace

import numpy as np

from pipeline.core.model import NEVER, Limits, Trace


@dataclass(frozen=True, slots=True)
class Shape:
    """What a random trace is like; times in us, sizes in bytes."""

    requests: int = 200
    span_us: int = 2_000
    questions: int = 6
    brokers: int = 2
    clients: int = 20
    keys: int = 4
    largest: int = 60
    longest_us: int = 60
    leaving: float = 0.15


def random_trace(seed: int, shape: Shape) -> Trace:
    """Make a trace; equal questions have one broker, everything else is up to chance."""
    chance = np.random.default_rng(seed)
    n = shape.requests
    question = chance.integers(0, shape.questions, n).astype(np.int32)
    leaves = chance.random(n) < shape.leaving

    def upto(most: int, dtype: type = np.int64) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        return chance.integers(0, most + 1, n).astype(dtype)

    write_us = upto(shape.longest_us)
    return Trace(
        arrival_us=np.sort(upto(shape.span_us)),
        question=question,
        share=upto(shape.keys - 1, np.int32),  # type: ignore[arg-type]
        client=upto(shape.clients - 1, np.int32),  # type: ignore[arg-type]
        broker=question % shape.brokers,
        estimate_bytes=upto(shape.largest // 2),
        heap_bytes=upto(shape.largest),
        direct_bytes=upto(shape.largest),
        upstream_us=upto(shape.longest_us),
        hold_us=upto(shape.longest_us // 3),
        write_us=write_us,
        direct_us=np.minimum(upto(shape.longest_us), write_us),
        cancel_us=np.where(leaves, upto(3 * shape.longest_us), NEVER),
    )


def times(factor: int, trace: Trace, limits: Limits) -> tuple[Trace, Limits]:
    """Multiply all sizes."""
    most = limits.max_answer_bytes
    return (
        replace(
            trace,
            estimate_bytes=trace.estimate_bytes * factor,
            heap_bytes=trace.heap_bytes * factor,
            direct_bytes=trace.direct_bytes * factor,
        ),
        replace(
            limits,
            heap_bytes=limits.heap_bytes * factor,
            direct_bytes=limits.direct_bytes * factor,
            max_answer_bytes=None if most is None else most * factor,
        ),
    )


TIGHT = Limits(
    heap_bytes=200,
    direct_bytes=150,
    heap_timeout_us=150,
    direct_timeout_us=120,
    heap_queue=30,
    direct_queue=20,
    request_timeout_us=400,
    max_outstanding_per_broker=4,
)

RULES: dict[str, Limits] = {
    "fifo": TIGHT,
    "fifo alone": replace(TIGHT, coalescing=False),
    "fair": replace(TIGHT, fairness="namespace"),
    "fair alone": replace(TIGHT, fairness="namespace", coalescing=False),
    "capped": replace(TIGHT, fairness="tenant", key_cap_percent=30),
    "capped alone": replace(TIGHT, fairness="tenant", key_cap_percent=30, coalescing=False),
    "tight queues": replace(TIGHT, heap_queue=3, direct_bytes=70, direct_queue=1),
    "no bounds": replace(TIGHT, heap_queue=0, direct_queue=0, heap_timeout_us=10**9, direct_timeout_us=10**9),
    "no limits": replace(TIGHT, heap_bytes=0, direct_bytes=0, max_outstanding_per_broker=0),
    "oversize": replace(TIGHT, heap_bytes=40, direct_bytes=30, max_answer_bytes=0, coalescing=False),
    "oversize fair": replace(TIGHT, heap_bytes=40, direct_bytes=30, max_answer_bytes=0, fairness="principal"),
    "refused answers": replace(TIGHT, heap_bytes=50, direct_bytes=40),
    "no patience": replace(TIGHT, heap_timeout_us=0, direct_timeout_us=0, coalescing=False),
    "impatient": replace(TIGHT, request_timeout_us=90, fairness="connection"),
    "one question": replace(TIGHT, max_outstanding_per_broker=1, fairness="namespace"),
}
