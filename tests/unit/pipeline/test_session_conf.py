import os
from pathlib import Path

import pytest

from pipeline.running.session import _chosen, _cores, _local_jars


def test_what_spark_submit_was_told_goes_before_our_defaults_and_conf_before_both() -> None:
    usual = {"spark.a": "ours", "spark.b": "ours", "spark.c": "ours"}
    found = _chosen(usual, {"spark.a": "submitted", "spark.b": "submitted"}, {"spark.b": "conf"})
    # Not naming a setting leaves that of spark-submit in force.
    assert found == {"spark.b": "conf", "spark.c": "ours", "spark.sql.session.timeZone": "UTC"}


def test_the_time_zone_is_not_to_be_chosen() -> None:
    zone = {"spark.sql.session.timeZone": "Asia/Tokyo"}
    assert _chosen({}, zone, zone)["spark.sql.session.timeZone"] == "UTC"


@pytest.mark.parametrize(("master", "cores"), [("local", 1), ("local[3]", 3), ("local[8,2]", 8)])
def test_cores_of_a_local_master(master: str, cores: int) -> None:
    assert _cores(master) == cores
    assert _cores("local[*]") == os.cpu_count()


def test_named_jars_are_for_every_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hadoop-aws.jar").touch()
    monkeypatch.delenv("PIPELINE_JARS", raising=False)
    assert _local_jars(delta=False) == {}
    monkeypatch.setenv("PIPELINE_JARS", str(tmp_path))
    assert _local_jars(delta=False) == _local_jars(delta=True) == {"spark.jars": f"{tmp_path}/hadoop-aws.jar"}
    monkeypatch.setenv("PIPELINE_JARS", str(tmp_path / "nothing"))
    assert _local_jars(delta=False) == {}
