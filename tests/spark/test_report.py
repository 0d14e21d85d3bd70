"""The report from tables: what is gathered, by hand-made events whose answers are worked out here; one cluster a page;
and jobs that have not run yet.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.core.errors import PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.periods import Period
from pipeline.core.tables import Table
from pipeline.core.tables.events import QUARANTINE
from pipeline.core.tables.slowed import SLOWED
from pipeline.core.tables.storms import STORM_MEMBERS, STORMS
from pipeline.core.tables.usage import USAGE
from pipeline.core.tables.whatif import ADVICE, REPLAYED
from pipeline.report import timeline
from pipeline.report.clock import Clock
from pipeline.report.gather import gather
from pipeline.report.rankings import as_json, ranking
from pipeline.report.write import ReportSettings, write_report
from pipeline.store.tables import write_rows
from tests.support.pipeline.replay_events import REFUSED, SLOW, START_US, frame, store
from tests.support.web.html_pages import Page

MIB = 2**20
SECOND = 1_000_000


def common(out: Path) -> CommonSettings:
    return CommonSettings(str(out), None, {})


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(START_US / 1e6 + seconds, UTC)


def rows(table: Table, *some: dict[str, Any]) -> list[dict[str, Any]]:
    """Make rows of a table of which a test names what matters: numbers are 0, times the start, the rest null."""
    usual = {"int16": 0, "int32": 0, "int64": 0, "double": 0.0, "bool": False, "timestamp": at(0), "date": at(0).date()}
    empty = {column.name: None if column.nullable else usual.get(column.type, "") for column in table.columns}
    return [empty | named for named in some]


def test_memory_is_shown_when_it_was_held_and_when_it_was_waited_for(spark: SparkSession) -> None:
    clock = Clock(START_US, SECOND, 6)
    use = timeline.memory_use(frame(spark, SLOW, SLOW | {"carries_cost": False}), clock)
    assert sorted(tuple(row) for row in use.collect()) == [
        (0, "heap", "waiting", 200.0),
        (1, "heap", "held", 200.0),
        (2, "direct", "waiting", 300.0),
        (2, "heap", "held", 1800.0),
        (3, "direct", "held", 480.0),
    ]


def test_what_is_gathered_from_events(spark: SparkSession, tmp_path: Path) -> None:
    store(
        spark,
        tmp_path,
        SLOW | {"dropped_before": 2},
        {"at_us": 100_000, "heap_wait_us": 3 * SECOND, "total_us": 4 * SECOND},
        REFUSED | {"at_us": 200_000, "namespace": "t/other"},
        {"kind": "watch_init", "namespace": "", "tenant": ""},
    )
    facts = gather(spark, common(tmp_path))
    overview, recorded = facts.overview, facts.recorded
    assert (overview.requests, overview.answered, overview.unanswered, overview.watch_frames) == (3, 2, 1, 1)
    assert (overview.namespaces, overview.proxies, overview.starts, overview.dropped) == (2, 1, 1, 2)
    assert (overview.begin_us, overview.end_us) == (START_US, START_US + 25_200_000)
    # The refused one waited longest.
    assert overview.longest_wait_us == 25 * SECOND
    assert (overview.heap_wait_us, overview.direct_wait_us) == (29 * SECOND, SECOND // 2)
    assert recorded.p50_us == pytest.approx(3 * SECOND, rel=0.09)
    assert recorded.p99_us == pytest.approx(25 * SECOND, rel=0.09)
    assert recorded.endings.groupby("reason")["requests"].sum().to_dict() == {"ok": 2, "timeout in heap": 1}
    assert recorded.peaks["lists", "heap"] == 1800
    heap = recorded.memory[recorded.memory["kind"] == "heap"]
    assert set(heap["limit_mib"]) == {100.0}
    assert len(heap) == overview.clock.bins
    found = facts.found
    assert (found.rankings, found.storms, found.slowed, found.quarantine) == (None, None, None, [])
    assert facts.advised.points == facts.advised.calibration == []


def test_a_page_is_of_one_cluster_which_must_be_said_where_there_are_several(
    spark: SparkSession, tmp_path: Path
) -> None:
    store(
        spark,
        tmp_path,
        {"cluster": "east", "proxy_id": "e"},
        {"cluster": "west", "proxy_id": "w", "heap_wait_us": 9},
        {"cluster": None, "at_us": 1},
    )
    where = common(tmp_path)
    usage = [
        {"cluster": cluster, "window_seconds": 60, "window_start": at(0), "namespace": name, "requests": number}
        for cluster, name, number in (("east", "e/n", 7), ("west", "w/n", 5), ("west", "w/m", 1))
    ]
    write_rows(spark, where, USAGE, rows(USAGE, *usage))
    storms = [{"cluster": name, "storm": number, "requests": 10} for number, name in enumerate(("east", "west"), 1)]
    write_rows(spark, where, STORMS, rows(STORMS, *storms))
    write_rows(spark, where, STORM_MEMBERS, rows(STORM_MEMBERS, *(storm | {"rank": 1} for storm in storms)))
    slowed = [{"cluster": name, "topic": name, "throttle": "adaptive", "seconds": 9.0} for name in ("east", "west")]
    write_rows(spark, where, SLOWED, rows(SLOWED, *slowed))
    write_rows(spark, where, REPLAYED, rows(REPLAYED, {"cluster": "east"}))
    write_rows(spark, where, ADVICE, rows(ADVICE, {"chosen": True, "promised_wait_us": 1e6}))
    with pytest.raises(PipelineError, match=r"^--cluster: got none, and --out .* has events of '', 'east', 'west'"):
        gather(spark, where)
    facts = gather(spark, where, Period(cluster="west"))
    assert (facts.overview.cluster, facts.overview.requests, facts.overview.proxies) == ("west", 1, 1)
    said = json.loads(as_json(facts))
    # The longest wait there was, though its bucket is wider.
    assert said["memory_wait_p99_us"] == 9
    assert facts.recorded.waits["value"].max() == 9e-6
    requests = [
        (row["name"], row["value"], row["share"]) for row in said["rankings"] if row["dimension"] == "namespace"
    ]
    assert requests == [("w/n", 5.0, pytest.approx(5 / 6)), ("w/m", 1.0, pytest.approx(1 / 6))]
    assert [row["storm"] for row in said["storms"]] == [2]
    assert [row["topic"] for row in facts.found.slowed or ()] == ["west"]
    # What was replayed is of the other.
    assert facts.advised.points == ()
    assert gather(spark, where, Period(cluster="east")).advised.target_us == 1e6
    assert gather(spark, where, Period(cluster="")).overview.requests == 1


def test_who_has_most_is_ranked_over_the_chosen_time(spark: SparkSession, tmp_path: Path) -> None:
    store(spark, tmp_path, {}, {"at_us": 3600 * SECOND})
    usage = [
        {"window_seconds": 60, "window_start": at(begin), "namespace": name, "proxy_id": "p1", "requests": number,
         "memory_wait_seconds": wait}
        for begin, name, number, wait in ((0, "t/old", 100, 50.0), (60, "t/a", 3, 1.0), (60, "t/b", 1, 3.0),
                                          (3600, "t/a", 2, 1.0))
    ]  # fmt: skip
    write_rows(spark, common(tmp_path), USAGE, rows(USAGE, *usage))
    # It begins within a window, all of which counts.
    facts = gather(spark, common(tmp_path), Period(since_us=START_US + 119 * SECOND))
    found = facts.found.rankings or ()
    requests = [(row["name"], row["value"]) for row in ranking(found, "namespace", "requests")]
    assert requests == [("t/a", 5.0), ("t/b", 1.0)]
    assert [row["name"] for row in ranking(found, "namespace", "memory_wait_seconds")] == ["t/b", "t/a"]
    assert [(row["name"], row["share"]) for row in ranking(found, "proxy_id", "requests")] == [("p1", 1.0)]


def test_storms_come_with_their_members_and_slowed_topics_with_connections(spark: SparkSession, tmp_path: Path) -> None:
    store(spark, tmp_path, {})
    where = common(tmp_path)
    storms = [{"storm": 1, "requests": 5, "begin": at(9)}, {"storm": 2, "requests": 50, "begin": at(3)}]
    write_rows(spark, where, STORMS, rows(STORMS, *storms))
    members = [{"storm": 2, "rank": rank, "name": f"n{rank}", "dimension": "tenant"} for rank in range(1, 6)]
    write_rows(spark, where, STORM_MEMBERS, rows(STORM_MEMBERS, *members))
    both = {"throttle": "adaptive", "topic": "t", "reason": "memory"}
    slowed: list[dict[str, Any]] = [
        both | {"seconds": 10.0, "natural_bytes_per_second": 8.0},
        both | {"seconds": 30.0, "natural_bytes_per_second": 4.0, "hour_start": at(3600), "reason": "backlog"},
        {"throttle": "threshold", "reason": "memory", "seconds": 1.0, "most_connections": 4},
        {"throttle": "adaptive", "reason": "forgotten", "forgotten_topics": 2},
    ]
    write_rows(spark, where, SLOWED, rows(SLOWED, *slowed))
    found = gather(spark, where).found
    assert [(row["storm"], row["begin_us"] - START_US, row["of_all"]) for row in found.storms or ()] == [
        (2, 3 * SECOND, 2), (1, 9 * SECOND, 2),
    ]  # fmt: skip
    assert [[each["name"] for each in row["members"]] for row in found.storms or ()] == [["n1", "n2"], []]
    connections, topic = found.slowed or ()
    assert (connections["topic"], connections["most_connections"]) == (None, 4)
    assert (topic["seconds"], topic["natural_bytes_per_second"], topic["reasons"]) == (40.0, 5.0, "backlog and memory")


def test_what_began_before_the_period_and_lasted_into_it_is_shown(spark: SparkSession, tmp_path: Path) -> None:
    midnight = 6400
    store(spark, tmp_path, {"at_us": midnight * SECOND})
    storm = {"begin": at(midnight - 9), "served_seconds": 10.0}
    write_rows(
        spark, common(tmp_path), STORMS, rows(STORMS, storm | {"storm": 1}, storm | {"storm": 2, "served_seconds": 8.0})
    )
    write_rows(spark, common(tmp_path), STORM_MEMBERS, rows(STORM_MEMBERS))
    hours = [(f"t/{late}", at(midnight - 3600 + late)) for late in (0, 1)]
    usage = [{"namespace": name, "window_start": begin, "window_seconds": 3600, "requests": 1} for name, begin in hours]
    write_rows(spark, common(tmp_path), USAGE, rows(USAGE, *usage))
    slowed = [{"topic": name, "hour_start": begin, "throttle": "adaptive", "seconds": 1.0} for name, begin in hours]
    write_rows(spark, common(tmp_path), SLOWED, rows(SLOWED, *slowed))
    found = gather(spark, common(tmp_path), Period(since_us=START_US + midnight * SECOND)).found
    assert [row["storm"] for row in found.storms or ()] == [1]
    assert {row["topic"] for row in found.slowed or ()} == {"t/1"}
    assert [row["name"] for row in ranking(found.rankings or (), "namespace", "requests")] == ["t/1"]


def test_copies_of_what_is_no_event_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    store(spark, tmp_path, SLOW)
    texts = [{"reason": "malformed", "digest": str(copies), "copies": copies} for copies in (3, 2)]
    write_rows(spark, common(tmp_path), QUARANTINE, rows(QUARANTINE, *texts))
    assert gather(spark, common(tmp_path)).found.quarantine == [{"reason": "malformed", "copies": 5}]


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
    heap, direct = ([row["bytes"] / MIB for row in found if row["kind"] == kind] for kind in ("heap", "direct"))
    assert heap == [100, 110, 110, 120, 120, 100, 100, 0, 100, 100]
    assert direct == [1, 2, 2, 2, 2, 1, 1, 5, 1, 1]
    store(spark, tmp_path, *events)
    facts = gather(spark, common(tmp_path))
    whole = facts.recorded.memory
    assert facts.overview.limits_differ
    assert whole[whole["kind"] == "heap"]["limit_mib"].max() == 120.0


def test_the_page_is_written_whole_before_it_has_its_name(spark: SparkSession, tmp_path: Path) -> None:
    store(spark, tmp_path, SLOW, REFUSED)
    settings = ReportSettings(common(tmp_path), tmp_path / "pages" / "page.html")
    summary = write_report(spark, settings)
    text = summary.path.read_text(encoding="utf-8")
    assert len(text.encode()) == summary.bytes
    assert [found.name for found in (tmp_path / "pages").iterdir()] == ["page.html"]
    assert any("2 requests for topic lists of 1 namespace came to 1 proxy" in found for found in Page(text).paragraphs)


def test_no_events_are_an_error_that_names_the_job_to_run(spark: SparkSession, tmp_path: Path) -> None:
    expected = "got no events from the beginning to the end, expected the table `events`: run"
    with pytest.raises(PipelineError, match=expected):
        gather(spark, common(tmp_path))
    store(spark, tmp_path)
    with pytest.raises(PipelineError, match="got no events"):
        gather(spark, common(tmp_path))
