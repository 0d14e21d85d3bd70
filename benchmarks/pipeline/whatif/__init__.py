"""The part `whatif`: 24 scenarios over all requests of the table `events`, by two engines with the same kernel.

Rule: an engine writes `whatif.parquet` with the columns of `ROW`, sorted by scenario; both files must be equal. The
time of a run is split into making traces of events and replaying them, since only the first is the engine's own work.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any, Final

from pipeline.core.model import MIB, Aggregates, Limits

__all__ = ["ROW", "SCENARIOS", "rows_of"]

SCENARIOS: Final[tuple[Limits, ...]] = tuple(
    Limits(heap_bytes=heap * MIB, direct_bytes=direct * MIB, heap_queue=queue, heap_timeout_us=timeout_ms * 1000)
    for heap, direct, queue, timeout_ms in product((25, 50, 100), (25, 100), (100, 10_000), (1000, 25_000))
)
ROW: Final = ("scenario", "outcomes", "waits", "peak_heap_bytes", "peak_direct_bytes", "questions")


def rows_of(counted: Sequence[Aggregates]) -> list[dict[str, Any]]:
    """Return the rows that are compared."""
    return [
        {
            "scenario": number,
            "outcomes": each.outcomes.tolist(),
            "waits": each.waits.ravel().tolist(),
            "peak_heap_bytes": each.peak_heap_bytes,
            "peak_direct_bytes": each.peak_direct_bytes,
            "questions": each.questions,
        }
        for number, each in enumerate(counted)
    ]
