"""What a job that was killed leaves of a table that was not there before."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrameWriter, SparkSession

from pipeline.core.options import CommonSettings
from pipeline.core.tables.days import DAYS
from pipeline.store.tables import frame_of, read_table, write_table


class KilledError(BaseException):
    """Stands for the end of the process."""


def test_first_write_of_a_table_that_was_killed_is_written_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = CommonSettings(str(tmp_path), None, {})
    rows = frame_of(spark, DAYS, [])

    def killed(_: DataFrameWriter, path: str) -> None:
        # The files of rows are there before the commit.
        place = Path(path.removeprefix("file://"))
        place.mkdir()
        (place / "part-00000.snappy.parquet").touch()
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(DataFrameWriter, "save", killed)
        with pytest.raises(KilledError):
            write_table(common, DAYS, rows)
    write_table(common, DAYS, rows)
    assert read_table(spark, common, DAYS).collect() == []


def test_directory_that_was_made_for_a_first_commit_is_no_table_of_before(spark: SparkSession, tmp_path: Path) -> None:
    common = CommonSettings(str(tmp_path), None, {})
    (tmp_path / DAYS.name / "_delta_log").mkdir(parents=True)
    write_table(common, DAYS, frame_of(spark, DAYS, []))
    assert read_table(spark, common, DAYS).collect() == []
