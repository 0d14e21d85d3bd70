"""Values that a request never showed: those of another, which is like it. Done here in tasks, with numpy and Arrow.

Rule: a request that was refused, or whose client left, gets what it lacks from the last answered request with the same
question, else namespace and mode, else namespace (the first such behind it, if there is none before), else the median
of all, within the part of the trace that its task sorts: half a million requests. Where nobody in that part showed
anything, the value is the mean of its proxy, or 0 if nobody ever showed one. The rows of a part come sorted and go
piece by piece, with the last of each question that showed itself before them: memory does not grow with the part.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from uuid import uuid4

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

# Columns of `replay_input` that a request may lack, and the fields of events; the broker is a hash, the others are
# numbers.
MEASURED: Final = {
    "estimate_bytes": "heap_estimate_bytes",
    "heap_bytes": "heap_actual_bytes",
    "direct_bytes": "direct_bytes",
    "upstream_us": "upstream_us",
    "hold_us": "read_us",
    "write_us": "write_us",
    "direct_us": "direct_us",
    "broker": "broker",
}
# The columns of rows beside those of `replay_input`: a key, and whether others may take what theirs is.
HELPERS: Final = ("mode", "shown")
DESCRIBED: Final = (
    "proxy_id string, rows long, first_us long, last_us long, longest_work_us long, largest_heap_bytes long,"
    " largest_direct_bytes long, imputed long"
)
_LEVELS: Final = (("namespace", "mode", "question"), ("namespace", "mode"), ("namespace",))
PIECE_ROWS: Final = 1_000_000
# Readers of a window leave the other groups of a file alone.
GROUP_ROWS: Final = 100_000
# Spark writes these in the names of directories as the numbers of their characters.
_SIGNS: Final = re.compile(r"[\x01-\x1f\"#%'*/:=?\\\x7f{\[\]^]")
_ODD: Final = np.uint64(0x9E37_79B9_7F4A_7C15)

Usual = Mapping[str, Mapping[str, int]]


def filled(batches: Iterator[pa.RecordBatch], usual: Usual) -> Iterator[pa.Table]:
    """Yield the sorted rows of a part of one proxy without gaps; `usual` has, by proxy, what is left to take."""
    before: pa.Table | None = None
    for piece in _pieces(batches):
        whole = piece if before is None else pa.concat_tables([before, piece])
        keys = pd.DataFrame({name: whole.column(name).to_numpy() for name in _LEVELS[0]})
        shown = whole.column("shown").to_numpy()
        found = _finished(_without_gaps(whole, keys, shown, usual))
        yield found.slice(len(whole) - len(piece))
        before = whole.take(np.sort(keys[shown].drop_duplicates(keep="last").index.to_numpy()))


def written(batches: Iterator[pa.RecordBatch], path: str, usual: Usual) -> Iterator[pa.RecordBatch]:
    """Write the rows of a part without gaps below a mounted directory, and yield rows of `DESCRIBED`."""
    for number, rows in enumerate(filled(batches, usual)):
        proxy_id, first_us = rows.column("proxy_id")[0].as_py(), rows.column("arrival_us")[0].as_py()
        place = Path(path, f"proxy_id={_SIGNS.sub(lambda sign: f'%{ord(sign[0]):02X}', proxy_id)}")
        place.mkdir(parents=True, exist_ok=True)
        # In the order of names is the order of time; a task that runs again writes the same file.
        hidden = place / f".{uuid4().hex}"
        pq.write_table(rows.drop_columns(["proxy_id"]), hidden, row_group_size=GROUP_ROWS)
        os.replace(hidden, place / f"part-{first_us:020d}-{number:04d}.parquet")
        work = pc.add(pc.add(rows.column("upstream_us"), rows.column("hold_us")), rows.column("write_us"))
        described = {
            "proxy_id": proxy_id,
            "rows": len(rows),
            "first_us": first_us,
            "last_us": rows.column("arrival_us")[-1].as_py(),
            "longest_work_us": pc.max(work).as_py(),
            "largest_heap_bytes": pc.max(rows.column("heap_bytes")).as_py(),
            "largest_direct_bytes": pc.max(rows.column("direct_bytes")).as_py(),
            "imputed": pc.sum(rows.column("imputed")).as_py(),
        }
        yield pa.RecordBatch.from_pylist([described])


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    taken: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            taken.append(batch)
            rows += batch.num_rows
        if rows >= PIECE_ROWS:
            yield pa.Table.from_batches(taken)
            taken, rows = [], 0
    if taken:
        yield pa.Table.from_batches(taken)


def _without_gaps(rows: pa.Table, keys: pd.DataFrame, shown: NDArray[np.bool_], usual: Usual) -> pa.Table:
    lacks = rows.column("imputed").to_numpy()
    if not lacks.any():
        return rows
    like = _like(keys, shown, lacks)
    # To look for what is typical takes longer than all else, and hardly anybody needs it.
    some_alone = like.is_null().to_numpy(zero_copy_only=False)[lacks].any()
    proxy_id = rows.column("proxy_id")[0].as_py()
    for name in MEASURED:
        column = rows.column(name).combine_chunks()
        choices = [column, column.take(like)]
        if some_alone:
            known = column.filter(pa.array(shown)).to_numpy()
            choices.append(pa.scalar(_typical(name, known) if len(known) else usual[proxy_id][name], column.type))
        rows = rows.set_column(rows.schema.get_field_index(name), name, pc.coalesce(*choices))
    return rows


def _like(keys: pd.DataFrame, shown: NDArray[np.bool_], lacks: NDArray[np.bool_]) -> pa.Array:
    """Find for each row that lacks something the place of the row that it takes from; null if there is none."""
    places = pd.Series(np.arange(len(keys))).where(shown)
    found = pd.Series(np.nan, index=keys.index)
    for level in _LEVELS:
        line = places.groupby([keys[name] for name in level], sort=False)
        for other in (line.ffill, line.bfill):
            if not found[lacks].isna().any():
                break
            found = found.fillna(other())
    return pa.array(found.where(lacks).to_numpy(), from_pandas=True).cast(pa.int64())


def _typical(name: str, known: NDArray[np.int64]) -> int:
    """Return the most frequent broker, or the number in the middle."""
    if name == "broker":
        names, counts = np.unique(known, return_counts=True)
        return int(names[counts.argmax()])
    return int(np.sort(known)[(len(known) - 1) // 2])


def _finished(rows: pa.Table) -> pa.Table:
    """Leave out the helpers. A question is one to one broker; two medians are of two requests."""
    question, broker = (rows.column(name).to_numpy().view(np.uint64) for name in ("question", "broker"))
    direct_us = pc.min_element_wise(rows.column("direct_us"), rows.column("write_us"))
    for name, column in (("question", pa.array((question ^ (broker * _ODD)).view(np.int64))), ("direct_us", direct_us)):
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows.drop_columns(list(HELPERS))
