"""A run over little input is told to start a small Spark; any other has what it was told."""

from pathlib import Path

import pytest

from pipeline.core.options import CommonSettings
from pipeline.running import small
from pipeline.running.small import SMALL, for_little

KEY = "spark.sql.adaptive.enabled"


def told(tmp_path: Path, master: str | None = None, **conf: str) -> CommonSettings:
    (tmp_path / "events").mkdir(parents=True, exist_ok=True)
    (tmp_path / "events" / "part.parquet").write_bytes(b"12345")
    return CommonSettings(str(tmp_path), master, conf)


@pytest.mark.parametrize("master", [None, "local[2]"])
def test_little_input_has_a_small_spark_and_what_the_user_says_goes_before(tmp_path: Path, master: str | None) -> None:
    found = for_little(told(tmp_path, master, **{KEY: "mine"}), str(tmp_path / "not there"))
    assert found.conf == {**SMALL, KEY: "mine"}


def test_tables_and_files_that_are_much_for_themselves_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common, source = told(tmp_path / "out"), tmp_path / "in"
    source.mkdir()
    (source / "a.jsonl.gz").write_bytes(b"1234")
    monkeypatch.setattr(small, "LITTLE_BYTES", 5)
    assert for_little(common, str(source)).conf == SMALL
    (source / "b.jsonl.gz").write_bytes(b"12")
    assert for_little(common, str(source)) == common
    (tmp_path / "out" / "events" / "more.parquet").write_bytes(b"1")
    assert for_little(common, None) == common


def test_nothing_is_known_of_what_is_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for common, source in (
        (CommonSettings("s3a://bucket/tables", None, {}), None),
        (told(tmp_path), "s3a://bucket/events"),
        (told(tmp_path, "spark://host:7077"), None),
    ):
        assert for_little(common, source) == common
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert for_little(told(tmp_path), None) == told(tmp_path)


def test_what_is_behind_a_link_or_is_one_large_file_may_be_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = told(tmp_path / "out")
    monkeypatch.setattr(small, "LITTLE_BYTES", 5)
    (tmp_path / "much").mkdir()
    (tmp_path / "much" / "a.jsonl").write_bytes(b"123456")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "proxy").symlink_to(tmp_path / "much")
    for source in (tmp_path / "in", tmp_path / "much" / "a.jsonl"):
        assert for_little(common, str(source)) == common


@pytest.mark.parametrize("name", small.OF_JAVA)
def test_a_collector_that_the_environment_names_is_the_only_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = told(tmp_path)
    monkeypatch.setenv(name, "-Xss4m -XX:+UseG1GC")
    assert for_little(common, None) == common
