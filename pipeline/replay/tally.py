"""Add up what came of replays: over windows, replicas and proxies.

Rule: every figure of a result comes from sums and maxima, so that it does not matter how the work was split.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.core.buckets import BUCKETS, EDGES
from pipeline.core.model import Int64s, Outcome

REFUSED: Final = tuple(
    outcome for outcome in Outcome if outcome.name.startswith(("TIMEOUT", "QUEUE")) or outcome is Outcome.OVERSIZE
)


def refused(outcomes: Int64s) -> int:
    """Count the requests that the proxy did not serve: timed out, queue full, too large."""
    return int(outcomes[list(REFUSED)].sum())


def longest(counts: Int64s) -> float:
    """Return what no wait exceeded, in us: the upper edge of the last bucket that has any."""
    taken = np.flatnonzero(counts)
    if not len(taken) or taken[-1] == 0:
        return 0.0
    return float(EDGES[min(int(taken[-1]) + 1, BUCKETS - 1)])


def rows_of(arrays: Sequence[Int64s], **same: int) -> pd.DataFrame:
    """Return the counts that are not 0 as rows that Spark adds up: number of the array (`what`), place (`at`), `count`.

    `same` are columns with one value.
    """
    places = [np.flatnonzero(counts) for counts in arrays]
    # Arrow takes no other widths for the columns.
    columns = {name: np.full(sum(map(len, places)), value, np.int32) for name, value in same.items()}
    what = np.repeat(np.arange(len(arrays), dtype=np.int32), [len(each) for each in places])
    found = {"what": what, "at": np.concatenate(places).astype(np.int32)}
    counts = np.concatenate([counts[place] for counts, place in zip(arrays, places, strict=True)])
    return pd.DataFrame(columns | found | {"count": counts.astype(np.int64)})


def summed(
    rows: DataFrame, by: Sequence[str], sizes: Sequence[int], largest: int = -1
) -> dict[tuple[int, ...], list[Int64s]]:
    """Add rows up in Spark, by these columns; returns arrays of these sizes, as `rows_of` took them, by their values.

    The result does not grow with the data. For the array with the number `largest` it is the largest of each place.
    """
    found: dict[tuple[int, ...], list[Int64s]] = {}
    sums = rows.groupBy(*by, "what", "at").agg(F.sum("count").alias("sum"), F.max("count").alias("most"))
    for row in sums.collect():
        arrays = found.setdefault(tuple(row[name] for name in by), [np.zeros(size, np.int64) for size in sizes])
        arrays[row["what"]][row["at"]] = row["most" if row["what"] == largest else "sum"]
    return found
