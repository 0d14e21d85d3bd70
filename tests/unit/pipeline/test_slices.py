from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.replay.slices import COLUMNS, batches_of, read_slice, slice_of


def table(arrivals: list[int], **named: list[int]) -> pa.Table:
    count = len(arrivals)
    columns = {name: pa.array([0] * count, pa.int64()) for name in COLUMNS}
    columns |= {name: pa.array(values, pa.int64()) for name, values in named.items()}
    return pa.table(columns | {"arrival_us": pa.array(arrivals, pa.int64())})


def test_slice_is_what_came_in_its_time_and_what_warms_it_up() -> None:
    part = slice_of(table([1, 2, 3, 4, 5, 6]), warm_us=2, start_us=4, end_us=6)
    assert part.numbers["arrival_us"].tolist() == [2, 3, 4, 5]
    assert (part.warm_up, part.counted) == (2, 2)


def test_trace_counts_time_from_its_first_arrival_and_names_from_nought() -> None:
    part = slice_of(table([10, 11, 15], question=[7, -9, 7], tenant=[3, 3, 1]), 0, 0, 20)
    trace = part.trace("tenant")
    trace.check()
    assert trace.arrival_us.tolist() == [0, 1, 5]
    assert (trace.question.tolist(), trace.share.tolist()) == ([0, 1, 0], [0, 0, 1])
    assert part.trace("fifo").share.tolist() == [0, 0, 0]


def test_slice_is_read_by_proxy_even_if_its_name_is_a_number(tmp_path: Path) -> None:
    for proxy, arrivals in (("007", [1, 2, 3]), ("7", [9])):
        (tmp_path / f"proxy_id={proxy}").mkdir()
        written = table(arrivals, limits_id=[5] * len(arrivals))
        pq.write_table(written, tmp_path / f"proxy_id={proxy}" / "part-0.parquet")
    assert read_slice(str(tmp_path), "007", 0, 2, 3).numbers["arrival_us"].tolist() == [1, 2]
    assert read_slice(str(tmp_path), "7", 0, 0, 99).numbers["arrival_us"].tolist() == [9]
    seen = [(times.tolist(), limits.tolist()) for times, limits in batches_of(str(tmp_path), "007")]
    assert seen == [([1, 2, 3], [5, 5, 5])]


def test_empty_slice_makes_an_empty_trace() -> None:
    part = slice_of(table([5]), warm_us=6, start_us=6, end_us=9)
    assert (len(part), len(part.trace("tenant"))) == (0, 0)
