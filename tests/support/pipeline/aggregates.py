"""Sums of what came of parts of a replay: what Spark adds up, without Spark."""

from typing import Final

import numpy as np

from pipeline.core.buckets import BUCKETS
from pipeline.core.model import WAITS, Aggregates, Outcome

NOTHING: Final = Aggregates(
    outcomes=np.zeros(len(Outcome), np.int64),
    waits=np.zeros((len(WAITS), BUCKETS), np.int64),
    peak_heap_bytes=0,
    peak_direct_bytes=0,
    questions=0,
    last_end_us=0,
)


def added(one: Aggregates, other: Aggregates) -> Aggregates:
    """Put two parts together."""
    return Aggregates(
        outcomes=one.outcomes + other.outcomes,
        waits=one.waits + other.waits,
        peak_heap_bytes=max(one.peak_heap_bytes, other.peak_heap_bytes),
        peak_direct_bytes=max(one.peak_direct_bytes, other.peak_direct_bytes),
        questions=one.questions + other.questions,
        last_end_us=max(one.last_end_us, other.last_end_us),
    )
