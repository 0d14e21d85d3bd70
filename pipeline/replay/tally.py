"""Add up what came of replays: over windows, replicas and proxies.

Rule: every figure of a result comes from sums and maxima, so that it does not matter how the work was split.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pipeline.core.buckets import BUCKETS, EDGES
from pipeline.core.model import WAITS, Aggregates, Outcome

REFUSED: Final = tuple(
    outcome for outcome in Outcome if outcome.name.startswith(("TIMEOUT", "QUEUE")) or outcome is Outcome.OVERSIZE
)
_GROWTH: Final = WAITS.index("heap_update")
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


def refused(outcomes: NDArray[np.int64]) -> int:
    """Count the requests that the proxy did not serve: timed out, queue full, too large."""
    return int(outcomes[list(REFUSED)].sum())


def growths_waited(counts: Aggregates) -> int:
    """Count the requests whose answer waited for heap memory to grow."""
    return int(counts.waits[_GROWTH][1:].sum())


def longest(counts: NDArray[np.int64]) -> float:
    """Give what no wait exceeded, in us: the upper edge of the last bucket that has any."""
    taken = np.flatnonzero(counts)
    if not len(taken) or taken[-1] == 0:
        return 0.0
    return float(EDGES[min(int(taken[-1]) + 1, BUCKETS - 1)])


def wait_counts(waits: NDArray[np.int64]) -> dict[int, int]:
    """Give the buckets that have any, by the number of their bucket (-1: waits of nothing)."""
    return {int(position) - 1: int(waits[position]) for position in np.flatnonzero(waits)}


def rows_of(arrays: Sequence[NDArray[np.int64]], **same: int) -> pd.DataFrame:
    """Give the counts that are not 0 as rows that Spark adds up: number of the array (`what`), place (`at`), `count`.

    `same` are columns with one value.
    """
    places = [np.flatnonzero(counts) for counts in arrays]
    # Arrow takes no other widths for the columns.
    columns = {name: np.full(sum(map(len, places)), value, np.int32) for name, value in same.items()}
    what = np.repeat(np.arange(len(arrays), dtype=np.int32), [len(each) for each in places])
    found = {"what": what, "at": np.concatenate(places).astype(np.int32)}
    counts = np.concatenate([counts[place] for counts, place in zip(arrays, places, strict=True)])
    return pd.DataFrame(columns | found | {"count": counts.astype(np.int64)})


def summed(rows: DataFrame, *by: str) -> list[Row]:
    """Add rows up in Spark, by these columns too: what comes back does not grow with the data. Also the largest."""
    columns = [*by, "what", "at"]
    return rows.groupBy(*columns).agg(F.sum("count").alias("sum"), F.max("count").alias("most")).collect()
