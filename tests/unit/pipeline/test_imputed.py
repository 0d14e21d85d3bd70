"""Gaps of a trace are filled in a task: piece by piece, by what was shown before; files are in the order of time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pipeline.replay import imputed
from pipeline.replay.imputed import MEASURED, filled, written

USUAL = {"p": {**dict.fromkeys(MEASURED, 500), "broker": 9}}
TYPES = {"proxy_id": pa.string(), "imputed": pa.bool_(), "shown": pa.bool_()}


def request(at: int, size: int | None, question: int = 1, namespace: int = 1, mode: int = 1) -> dict[str, Any]:
    """Make a row that showed `size` in everything, or that lacks everything."""
    return {
        "proxy_id": "p", "arrival_us": at, "question": question, **dict.fromkeys(MEASURED, size),
        "namespace": namespace, "mode": mode, "imputed": size is None, "shown": size is not None,
    }  # fmt: skip


def batches(rows: list[dict[str, Any]], each: int = 2) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([(name, TYPES.get(name, pa.int64())) for name in request(0, 0)])
    for begin in range(0, len(rows), each):
        yield pa.RecordBatch.from_pylist(rows[begin : begin + each], schema)


def sizes(rows: list[dict[str, Any]]) -> list[int]:
    pieces = list(filled(batches(rows), USUAL))
    assert all("shown" not in piece.column_names for piece in pieces)
    return [size for piece in pieces for size in piece.column("heap_bytes").to_pylist()]


def test_what_was_shown_in_an_earlier_piece_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imputed, "PIECE_ROWS", 2)
    rows = [
        request(0, 10),
        request(1, 20, question=2),
        request(2, None),
        request(3, None),
        request(4, None, question=2),
    ]
    assert sizes(rows) == [10, 20, 10, 10, 20]


def test_files_are_in_the_order_of_time_below_the_name_of_the_proxy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(imputed, "PIECE_ROWS", 2)
    rows = [{**request(at, at + 1), "proxy_id": "a/b:é"} for at in (5, 7, 30, 31, 100)]
    described = [row for batch in written(batches(rows), str(tmp_path), USUAL) for row in batch.to_pylist()]
    assert [(row["rows"], row["first_us"], row["last_us"]) for row in described] == [
        (2, 5, 7),
        (2, 30, 31),
        (1, 100, 100),
    ]
    (place,) = tmp_path.iterdir()
    assert place.name == "proxy_id=a%2Fb%3Aé"
    read = [pq.read_table(path, partitioning=None).column("arrival_us").to_pylist() for path in sorted(place.iterdir())]
    assert read == [[5, 7], [30, 31], [100]]
    named = ds.partitioning(pa.schema([("proxy_id", pa.string())]), flavor="hive")
    whole = ds.dataset(str(tmp_path), format="parquet", partitioning=named).to_table()
    assert whole.column("proxy_id").unique().to_pylist() == ["a/b:é"]
