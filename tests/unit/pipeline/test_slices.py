from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.replay.slices import COLUMNS, batches_of, read_slice


def test_slice_is_read_by_proxy_even_if_its_name_is_a_number(tmp_path: Path) -> None:
    for proxy, arrivals in (("007", [1, 2, 3]), ("7", [9])):
        (tmp_path / f"proxy_id={proxy}").mkdir()
        columns = dict.fromkeys((*COLUMNS, "limits_id"), [5] * len(arrivals)) | {"arrival_us": arrivals}
        pq.write_table(pa.table(columns), tmp_path / f"proxy_id={proxy}" / "part-0.parquet")
    assert read_slice(str(tmp_path), "007", 0, 2, 3).numbers["arrival_us"].tolist() == [1, 2]
    assert read_slice(str(tmp_path), "7", 0, 0, 99).numbers["arrival_us"].tolist() == [9]
    seen = [(times.tolist(), limits.tolist()) for times, limits in batches_of(str(tmp_path), "007")]
    assert seen == [([1, 2, 3], [5, 5, 5])]
