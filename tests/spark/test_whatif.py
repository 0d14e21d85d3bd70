from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from pipeline.core.errors import PipelineError
from pipeline.core.model import MIB, Limits, Outcome
from pipeline.replay import traces
from pipeline.replay.calibrate import calibrate
from pipeline.replay.job import Place, Total, replay_grid, simulate
from pipeline.replay.parts import Way, survey
from pipeline.replay.slices import read_slice
from pipeline.replay.traces import Prepared, prepare, replay_input
from tests.support.pipeline.aggregates import NOTHING, added
from tests.support.pipeline.replay_events import REFUSED, frame, storm

TIGHT = Limits(heap_bytes=MIB, direct_bytes=MIB, heap_timeout_us=200_000, direct_timeout_us=200_000)
GRID = (TIGHT, Limits(heap_bytes=2 * MIB, direct_bytes=MIB), Limits(fairness="tenant", heap_bytes=MIB), Limits())


@pytest.fixture(scope="module")
def stormed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    path = tmp_path_factory.mktemp("whatif") / "replay_input"
    return prepare(spark, frame(spark, *storm(1, 600)), str(path))


def loop(prepared: Prepared, load: int = 1, fleet: int = 1) -> list[Any]:
    """Replay each proxy whole, in this process."""
    totals = [NOTHING] * len(GRID)
    for proxy in prepared.proxies:
        whole = read_slice(prepared.path, proxy.proxy_id, 0, 0, proxy.last_us + 1)
        for replica in range(fleet):
            counted = simulate(whole.times(load).of_replica(replica, fleet), GRID)
            totals = [added(one, other) for one, other in zip(totals, counted, strict=True)]
    return totals


def same(total: Total, counts: Any) -> bool:
    mine = total.counts
    numbers = [mine.peak_heap_bytes, mine.peak_direct_bytes, mine.questions]
    return (
        np.array_equal(mine.outcomes, counts.outcomes)
        and np.array_equal(mine.waits, counts.waits)
        and numbers == [counts.peak_heap_bytes, counts.peak_direct_bytes, counts.questions]
    )


def test_sizes_nobody_showed_are_those_of_a_request_like_it(spark: SparkSession) -> None:
    refused = {**REFUSED, "at_us": 5}
    rows = replay_input(
        frame(
            spark,
            {"at_us": 1, "heap_actual_bytes": 10},
            {"at_us": 2, "heap_actual_bytes": 20},
            {"at_us": 9, "heap_actual_bytes": 90},
            refused,  # 3: the last answer to its question
            {**refused, "at_us": 0},  # 4: none before it, so the first after it
            {**refused, "question_hash": "other"},  # 5: its namespace and mode
            {"at_us": 3, "heap_actual_bytes": 30, "namespace": "t/m", "mode": "PERSISTENT", "question_hash": "m"},
            {**refused, "namespace": "t/m", "question_hash": "n"},  # 7: its namespace
            {**refused, "namespace": "t/new", "question_hash": "new"},  # 8: the median of the proxy: 10, 20, 30, 90
            {**refused, "proxy_id": "alone", "question_hash": "x"},  # 9: nobody ever
            {**refused, "outcome_stage": "direct", "heap_actual_bytes": 77, "upstream_us": 12},  # 10: what it showed
            # 11: a time that was cut short does not show how long the broker takes.
            {**refused, "outcome_stage": "upstream", "upstream_us": 99_999},
            # 12: over HTTP; 13: left before anybody looked at it.
            {**refused, "outcome_stage": "direct", "question_hash": None, "direct_bytes": 3},
            {**refused, "outcome": "cancelled", "outcome_stage": "client", "question_hash": None},
        )
    )
    found = {row.seq: row for row in rows.collect()}
    assert [found[seq].heap_bytes for seq in range(11)] == [10, 20, 90, 20, 10, 20, 30, 30, 20, 0, 77]
    assert [seq for seq in range(14) if found[seq].imputed] == [3, 4, 5, 7, 8, 9, 10, 11, 12, 13]
    assert (found[10].upstream_us, found[10].write_us, found[9].write_us) == (12, 2000, 0)
    assert found[3].recorded_outcome == Outcome.TIMEOUT_HEAP
    assert found[11].upstream_us == 5000
    over_http = found[12]
    assert (over_http.estimate_bytes, over_http.heap_bytes, over_http.upstream_us) == (0, 0, 0)
    assert (over_http.direct_bytes, over_http.write_us) == (3, 2000)
    assert found[13].heap_bytes == 20


def test_list_refused_for_its_size_is_as_large_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    too_large = {
        **REFUSED, "outcome": "oversize", "outcome_stage": "upstream", "heap_actual_bytes": 120 * MIB,
        "heap_wait_us": 0, "total_us": 5000,
    }  # fmt: skip
    prepared = prepare(spark, frame(spark, {"at_us": 1}, {**too_large, "at_us": 2}), str(tmp_path / "input"))
    # What the advice may not go below, and what the replay of the recorded limits refuses again.
    assert prepared.largest == (120 * MIB, 120 * MIB)
    whole = calibrate(spark, prepared, survey(spark, prepared, by_limits=True))[0]
    assert whole.recorded.outcomes[Outcome.OVERSIZE] == whole.simulated.outcomes[Outcome.OVERSIZE] == 1
    assert prepared.seen.waited == 0


def test_proxies_without_a_cluster_are_not_replayed_with_those_of_one(spark: SparkSession, tmp_path: Path) -> None:
    events = frame(spark, {"cluster": "east"}, {"cluster": None})
    with pytest.raises(PipelineError, match="--cluster: got none, and events of '', 'east': expected one"):
        prepare(spark, events, str(tmp_path / "input"))


def test_who_was_kept_waiting_waited_and_not_who_was_let_in_at_once(spark: SparkSession, tmp_path: Path) -> None:
    at_once, kept = {"heap_wait_us": 90, "direct_wait_us": 40}, {"heap_wait_us": 6_000, "direct_wait_us": 6_000}
    prepared = prepare(spark, frame(spark, at_once, at_once, kept, REFUSED), str(tmp_path / "input"))
    assert prepared.seen.waited == 2


def test_direct_memory_counts_by_byte_seconds_where_nobody_shared(spark: SparkSession) -> None:
    alone = {"group_size": 1, "direct_byte_us": 1_500_000}  # of 1000 bytes that were written for 2000 us
    rows = replay_input(
        frame(
            spark,
            {**alone, "at_us": 1},
            {**alone, "group_size": 2},
            {**alone, "group_size": 2, "carries_cost": False, "direct_byte_us": None},
            {**alone, "direct_byte_us": 9_000_000},  # 3: never longer than it was written
            {**alone, "direct_limit_bytes": 800},  # 4: all that there is was booked
            {**alone, "direct_limit_bytes": 0},
            {**REFUSED, "question_hash": "x", "at_us": 2},  # 6: as the one before it
            {**alone, "outcome": "cancelled", "outcome_stage": "write", "at_us": 3},  # 7: cut short
        )
    )
    found = {row.seq: row.direct_us for row in rows.collect()}
    assert [found[seq] for seq in range(6)] == [1500, 2000, 2000, 2000, 1875, 1500]
    assert (found[6], found[7]) == (1500, 1500)


def test_tasks_write_the_trace_that_the_driver_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("a/b=c%20", "é", "12", "012", ".", "..", "-", "x\ny", "a\\b", "{a}[b]*?")
    events = frame(spark, *({"proxy_id": name, "at_us": at} for name in names for at in (1, 5, 3)), REFUSED)
    here = prepare(spark, events, str(tmp_path / "here"))
    assert {*names} < {proxy.proxy_id for proxy in here.proxies}
    monkeypatch.setattr(traces, "ROWS_HERE", 0)
    of_tasks = prepare(spark, events, f"file://{tmp_path / 'tasks'}")
    assert of_tasks.proxies == here.proxies
    both = [
        {str(file.relative_to(tmp_path / name)): file.read_bytes() for file in (tmp_path / name).rglob("*.parquet")}
        for name in ("here", "tasks")
    ]
    assert both[0] == both[1]


@pytest.mark.parametrize("way", Way)
def test_work_items_come_to_what_a_loop_over_whole_traces_does(
    spark: SparkSession, stormed: Prepared, way: Way
) -> None:
    places = [Place(1, 1), Place(10, 1), Place(10, 3)]
    found = survey(spark, stormed, way=way)
    totals = replay_grid(spark, stormed, found, places, GRID)
    for place in places:
        expected = loop(stormed, place.load, place.fleet)
        assert [same(totals[place, number], expected[number]) for number in range(len(GRID))] == [True] * len(GRID)
        assert {int(each.outcomes.sum()) for each in expected} == {600 * place.load}


def test_windows_with_a_warm_up_come_to_what_whole_traces_do(spark: SparkSession, stormed: Prepared) -> None:
    found = survey(spark, stormed, rows=100)
    assert min(len(windows) for windows in found.windows.values()) >= 3
    totals = replay_grid(spark, stormed, found, [Place(1, 1)], GRID)
    expected = loop(stormed)
    for number in range(len(GRID)):
        one, other = totals[Place(1, 1), number].counts, expected[number]
        assert one.outcomes.sum() == other.outcomes.sum() == 600
        assert np.abs(one.outcomes - other.outcomes).sum() <= 0.05 * 600
