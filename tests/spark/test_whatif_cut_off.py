"""A `whatif` that is killed leaves nothing that `advise` would take for the result of one that ended."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.core.choice import Target
from pipeline.core.errors import PipelineError
from pipeline.core.model import MIB
from pipeline.core.periods import Period
from pipeline.jobs.advise import AdviseSettings, advise
from pipeline.jobs.whatif import WhatifSettings, whatif
from pipeline.replay.grid import Grid
from pipeline.report.write import ReportSettings, write_report
from tests.support.pipeline.replay_events import store, storm

TARGET = Target(load=1, max_refused=0.0, p99_wait_us=5_000_000)
GRID = Grid({"heap_bytes": (MIB, 4 * MIB), "direct_bytes": (MIB, 64 * MIB)}, (1,), (1,))


class KilledError(BaseException):
    """Stands for the end of the process."""


@pytest.fixture(scope="module")
def advised(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> AdviseSettings:
    out = tmp_path_factory.mktemp("cut-off") / "out"
    common = store(spark, out, *storm(2, 200))
    whatif(spark, WhatifSettings(common, GRID), lambda _: None)
    settings = AdviseSettings(common, TARGET)
    advise(spark, settings, lambda _: None)
    # What comes later needs more.
    store(spark, out, *storm(2, 1000))
    return settings


def test_no_advice_follows_from_a_whatif_that_was_killed(
    spark: SparkSession, advised: AdviseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KilledError

    for step in ("calibrate", "replay_grid"):
        with monkeypatch.context() as patch:
            patch.setattr(f"pipeline.jobs.whatif.{step}", killed)
            with pytest.raises(KilledError):
                whatif(spark, WhatifSettings(advised.common, GRID), lambda _: None)
        assert not Path(advised.common.out, "advice.conf").exists()
        with pytest.raises(PipelineError, match="whatif was begun and did not end, expected it to: run it again"):
            advise(spark, advised, lambda _: None)
        assert not Path(advised.common.out, "advice.conf").exists()
    page = Path(advised.common.out, "report.html")
    write_report(spark, ReportSettings(advised.common, page, advised.conf_path))
    assert "maxTopicListInFlightHeapMemSizeMB=" not in page.read_text()


def test_events_with_nothing_to_replay_leave_what_was_replayed_before(
    spark: SparkSession, advised: AdviseSettings
) -> None:
    settings = WhatifSettings(advised.common, GRID)
    whatif(spark, settings, lambda _: None)
    with pytest.raises(PipelineError, match="nothing to replay"):
        whatif(spark, replace(settings, period=Period(cluster="another")), lambda _: None)
    assert advise(spark, advised, lambda _: None).advice.final.requests == 1000
