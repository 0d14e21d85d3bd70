"""The report from tables: what is gathered, by hand-made events whose answers are worked out here; and jobs that have
not run yet.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.core.errors import PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.tables import TABLES
from pipeline.report import timeline
from pipeline.report.clock import Clock
from pipeline.report.gather import gather
from pipeline.report.write import ReportSettings, write_report
from pipeline.store.sinks import write_rows
from pipeline.transforms.memory import Peak, peaks
from tests.support.pipeline.replay_events import REFUSED, START_US, frame, store
from tests.support.web.html_pages import Page

SECOND = 1_000_000
# Waits a second for heap, holds its estimate for one, has its answer read and waits for direct memory in one more, and
# leaves in one.
SLOW = {
    "heap_wait_us": SECOND,
    "heap_estimate_bytes": 200,
    "upstream_us": SECOND,
    "read_us": SECOND // 2,
    "direct_wait_us": SECOND // 2,
    "direct_bytes": 600,
    "write_us": SECOND,
    "total_us": 4 * SECOND,
    "heap_held_us": 2 * SECOND,
    "heap_byte_us": 1000 * 2 * SECOND,
    "direct_held_us": SECOND,
    "direct_byte_us": 500 * SECOND,
}


def common(out: Path) -> CommonSettings:
    return CommonSettings(str(out), "parquet", None, {})


def test_memory_is_shown_when_it_was_held_and_when_it_was_waited_for(spark: SparkSession) -> None:
    clock = Clock(START_US, SECOND, 6)
    use = timeline.memory_use(frame(spark, SLOW, SLOW | {"carries_cost": False}), clock)
    assert sorted(tuple(row) for row in use.collect()) == [
        (0, "heap", "waiting", 200.0),
        (1, "heap", "held", 200.0),
        (2, "direct", "waiting", 300.0),
        (2, "heap", "held", 1800.0),
        (3, "direct", "held", 500.0),
    ]


def test_peaks_are_of_what_one_proxy_held_at_one_time(spark: SparkSession) -> None:
    events = [SLOW, SLOW | {"at_us": SECOND}, SLOW | {"proxy_id": "other"}, SLOW | {"carries_cost": False}]
    watch = {"kind": "watch_update", "total_us": 2, "direct_held_us": 2, "direct_byte_us": 100}
    assert peaks(frame(spark, *events, watch, watch | {"at_us": 1})) == {
        # The first has grown while the second holds its estimate; of one, its direct memory begins as the other's ends.
        ("lists", "heap"): Peak(2000, 1800),
        ("lists", "direct"): Peak(500, 500),
        ("watch", "direct"): Peak(100, 50),
    }


def test_what_is_gathered_from_events(spark: SparkSession, tmp_path: Path) -> None:
    store(
        spark,
        tmp_path,
        {"heap_used_bytes": 50 << 20, "dropped_before": 2},
        {"at_us": 100_000, "heap_wait_us": 3 * SECOND, "total_us": 4 * SECOND, "heap_used_bytes": 100 << 20},
        REFUSED | {"at_us": 200_000, "namespace": "t/other"},
        {"kind": "watch_init", "namespace": "", "tenant": ""},
    )
    facts = gather(spark, common(tmp_path))
    overview = facts.overview
    assert overview is not None
    assert (overview.requests, overview.answered, overview.refused, overview.watch_frames) == (3, 2, 1, 1)
    assert (overview.namespaces, overview.tenants, overview.proxies, overview.dropped) == (2, 1, 1, 2)
    assert (overview.begin_us, overview.end_us) == (START_US, START_US + 25_200_000)
    whole = facts.waits[facts.waits["bin"].isna()].iloc[0]
    assert (whole["count"], whole["p50_us"]) == (2, 0.0)
    assert whole["p99_us"] == pytest.approx(3 * SECOND, rel=0.09)
    assert facts.endings.groupby("reason")["requests"].sum().to_dict() == {"ok": 2, "timeout in heap": 1}
    assert facts.fullness["heap_share"].max() == 1.0
    heap = facts.memory[facts.memory["kind"] == "heap"]
    assert set(heap["limit_mib"]) == {100.0}
    assert len(heap) == overview.clock.bins
    assert [len(frame) for frame in (facts.storms, facts.top_costs, facts.whatif, facts.calibration)] == [0, 0, 0, 0]


def test_copies_are_counted_and_late_events_that_a_batch_took_are_not(spark: SparkSession, tmp_path: Path) -> None:
    store(spark, tmp_path, SLOW)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    same = {"source": "a", "detail": None, "ingested_at": now, "date": now.date()}
    texts = [
        ("malformed", "{", 3),
        ("malformed", "[", 2),
        ("late", '{"proxy_id": "p1", "boot_id": "b", "seq": 0, "kind": "get_topics"}', 4),
        ("late", '{"proxy_id": "p1", "boot_id": "b", "seq": 1}', 1),
        ("late", '{"proxy_id": "p1", "boot_id": "other", "seq": 0}', 1),
        ("late", '{"proxy_id": "p1", "boot_i', 1),
    ]
    rows = [same | {"reason": reason, "digest": raw, "raw": raw, "copies": copies} for reason, raw, copies in texts]
    write_rows(spark, common(tmp_path), TABLES["quarantine"], rows)
    found = gather(spark, common(tmp_path)).quarantine
    assert dict(zip(found["reason"], found["events"], strict=True)) == {"malformed": 5, "late": 3}
    write_rows(spark, common(tmp_path), TABLES["quarantine"], rows[2:3])
    assert gather(spark, common(tmp_path)).quarantine.empty


def test_limits_of_an_uneven_fleet_are_added_up_proxy_by_proxy(spark: SparkSession, tmp_path: Path) -> None:
    def of(proxy: str, at: int, heap_mib: int, direct_mib: int = 1) -> dict[str, Any]:
        limits = {"heap_limit_bytes": heap_mib << 20, "direct_limit_bytes": direct_mib << 20}
        return {"proxy_id": proxy, "at_us": at * SECOND, "total_us": SECOND // 2} | limits

    # The small one is there from 1 to 4 and gets more at 3; the large one stays to the end, where it is silent for less
    # long than before; another without a limit comes last.
    events = [of("large", 0, 100), of("small", 1, 10), of("small", 3, 20), of("small", 4, 20), of("large", 7, 100)]
    clock = Clock(START_US, SECOND, 10)
    proxies = timeline.limits_of_proxies(frame(spark, *events, of("other", 7, 0, 4)), clock)
    found = timeline.limits_in_force(proxies).orderBy("bin").collect()
    assert [row["heap_limit"] >> 20 for row in found] == [100, 110, 110, 120, 120, 100, 100, 0, 100, 100]
    assert [row["direct_limit"] >> 20 for row in found] == [1, 2, 2, 2, 2, 1, 1, 5, 1, 1]
    store(spark, tmp_path, *events)
    facts = gather(spark, common(tmp_path))
    heap = facts.memory[facts.memory["kind"] == "heap"]
    assert facts.overview is not None
    assert facts.overview.limits_differ
    assert heap["limit_mib"].max() == 120.0


def test_the_page_is_written_whole_before_it_has_its_name(spark: SparkSession, tmp_path: Path) -> None:
    store(spark, tmp_path, SLOW, REFUSED)
    settings = ReportSettings(common(tmp_path), tmp_path / "pages" / "page.html")
    summary = write_report(spark, settings)
    text = summary.path.read_text(encoding="utf-8")
    assert len(text.encode()) == summary.bytes
    assert [found.name for found in (tmp_path / "pages").iterdir()] == ["page.html"]
    assert any("2 requests for topic lists of 1 namespace came to 1 proxy" in found for found in Page(text).paragraphs)


def test_no_events_are_an_error_that_names_the_job_to_run(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(
        PipelineError, match="got no events from the beginning to the end, expected the table `events`: run"
    ):
        gather(spark, common(tmp_path))
    store(spark, tmp_path)
    with pytest.raises(PipelineError, match="got no events"):
        gather(spark, common(tmp_path))
