from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from pipeline.core.choice import Target
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.model import MIB, Outcome
from pipeline.core.options import CommonSettings
from pipeline.core.tables.history import ADVICE_HISTORY, CALIBRATION_HISTORY, LIMITS_BY_DAY
from pipeline.core.tables.whatif import ADVICE, REPLAYED, WHATIF
from pipeline.jobs.advise import AdviseSettings, AdviseSummary, advise
from pipeline.jobs.whatif import WhatifSettings, WhatifSummary, whatif
from pipeline.replay.grid import Grid
from pipeline.store.tables import read_table, write_rows
from tests.support.pipeline.replay_events import store, storm

REACHABLE = Target(load=2, max_refused=0.0, p99_wait_us=5_000_000)


def watch_frames() -> list[dict[str, Any]]:
    """Give frames of watchers: at most two of them are held at a time at one proxy, 2.5 MiB together."""
    whole: dict[str, Any] = {"kind": "watch_update", "proxy_id": "p1", "total_us": 60_000, "direct_held_us": 50_000}
    frames = [
        whole | {"at_us": 0, "direct_bytes": MIB},
        whole | {"at_us": 20_000, "direct_bytes": 3 * MIB // 2},
        # Begins when the first ends.
        whole | {"at_us": 50_000, "direct_bytes": MIB},
        whole | {"at_us": 20_000, "direct_bytes": MIB, "proxy_id": "p0"},
        # Passed without memory.
        whole | {"at_us": 20_000, "direct_bytes": 90 * MIB, "direct_held_us": 0},
    ]
    return [frame | {"direct_byte_us": frame["direct_bytes"] * frame["direct_held_us"]} for frame in frames]


@pytest.fixture(scope="module")
def common(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> CommonSettings:
    # One of both proxies has an empty name, which is a name as any other.
    events = [event | {"proxy_id": event["proxy_id"].removeprefix("p0")} for event in storm(2, 400)]
    return store(spark, tmp_path_factory.mktemp("advise") / "out", *events, *watch_frames())


@pytest.fixture(scope="module")
def tried(spark: SparkSession, common: CommonSettings) -> WhatifSummary:
    grid = Grid({"heap_bytes": (MIB, 4 * MIB), "direct_bytes": (MIB, 64 * MIB)}, loads=(1, 2), fleets=(1, 2))
    said: list[str] = []
    summary = whatif(spark, WhatifSettings(common, grid), said.append)
    assert any(line.startswith("calibration of all proxies: recorded 400 ok") for line in said)
    assert "0.0 % imputed" in said[0]
    return summary


def rows(spark: SparkSession, common: CommonSettings, table: Any) -> list[Row]:
    return read_table(spark, common, table).collect()


def test_whatif_has_a_row_for_each_scenario_and_loses_no_request(
    spark: SparkSession, common: CommonSettings, tried: WhatifSummary
) -> None:
    found = rows(spark, common, WHATIF)
    assert len(found) == tried.scenarios == 16
    outcomes = [outcome.name.lower() for outcome in Outcome]
    assert {sum(row[name] for name in outcomes) / row.load for row in found} == {400}
    assert {sum(row.wait_buckets.values()) / row.load for row in found} == {400}
    assert {(row.fleet, row.proxies) for row in found} == {(1, 2), (2, 4)}
    waits = {(row.heap_limit_bytes, row.load): row.wait_p99_us for row in found if row.fleet == 1}
    assert waits[MIB, 2] > waits[4 * MIB, 2]


@pytest.fixture(scope="module")
def advised(spark: SparkSession, common: CommonSettings, tried: WhatifSummary) -> AdviseSummary:
    return advise(spark, AdviseSettings(common, REACHABLE, headroom=0.5), lambda _: None)


def test_advice_is_refined_between_the_points_of_the_grid(
    spark: SparkSession, common: CommonSettings, advised: AdviseSummary
) -> None:
    held = advised.advice.held
    assert held.refused == 0
    assert held.wait_p99_us <= REACHABLE.p99_wait_us
    curve = rows(spark, common, ADVICE)
    assert {row.step for row in curve} >= {"grid", "final"}
    assert [(row.step, row.heap_limit_bytes) for row in curve if row.chosen] == [
        ("final", advised.advice.final.limits.heap_bytes)
    ]
    assert all(row.memory_bytes >= held.memory_bytes for row in curve if row.holds and row.step != "final")
    assert {row.best for row in curve if row.best} == {True}
    seen = rows(spark, common, REPLAYED)[0]
    assert held.limits.heap_bytes >= seen.peak_heap_bytes / held.fleet > 0
    assert held.limits.direct_bytes >= seen.peak_direct_bytes / held.fleet > 0
    # What the page compares with later days.
    kept = rows(spark, common, ADVICE_HISTORY)
    assert [row.direct_limit_bytes for row in kept] == [advised.advice.limits.direct_bytes]
    assert [row.requests for row in rows(spark, common, CALIBRATION_HISTORY)] == [400]
    assert sum(row.requests for row in rows(spark, common, LIMITS_BY_DAY)) == 400


def test_advised_direct_memory_has_room_for_what_watchers_held(
    spark: SparkSession, common: CommonSettings, advised: AdviseSummary
) -> None:
    advice = advised.advice
    fleet = advice.final.fleet
    assert advice.watch.peak_bytes == 5 * MIB // 2
    # Twice the load has twice the watchers.
    assert advice.watch.size_bytes == -(-5 // fleet) * MIB
    assert advice.limits.direct_bytes == advice.final.limits.direct_bytes + advice.watch.size_bytes
    assert f"maxTopicListInFlightDirectMemSizeMB={advice.limits.direct_bytes // MIB}\n" in advised.conf
    chosen = [row for row in rows(spark, common, ADVICE) if row.chosen]
    assert [(row.direct_limit_bytes, row.watch_direct_bytes) for row in chosen] == [
        (advice.limits.direct_bytes, advice.watch.size_bytes)
    ]
    assert "direct_limit_bytes" in chosen[0].extrapolated


@pytest.fixture(scope="module")
def curve(spark: SparkSession, common: CommonSettings, advised: AdviseSummary) -> list[Row]:
    return rows(spark, common, ADVICE)


@pytest.fixture
def advised_before(
    spark: SparkSession, common: CommonSettings, advised: AdviseSummary, curve: list[Row]
) -> CommonSettings:
    """Put the advice of an earlier run back, whatever other tests have made of it."""
    write_rows(spark, common, ADVICE, [row.asDict() for row in curve])
    (Path(common.out) / "advice.conf").write_text(advised.conf)
    return common


def chosen_or_in_a_file(spark: SparkSession, common: CommonSettings) -> list[object]:
    chosen: list[object] = [row for row in rows(spark, common, ADVICE) if row.chosen]
    return chosen + list(Path(common.out).glob("advice.conf"))


def test_target_that_nothing_holds_ends_with_what_to_try_and_without_the_advice_of_before(
    spark: SparkSession, advised_before: CommonSettings
) -> None:
    target = replace(REACHABLE, p99_wait_us=1.0)
    with pytest.raises(PipelineError, match="nothing in the grid holds the target at load 2"):
        advise(spark, AdviseSettings(advised_before, target, max_error=1e9), lambda _: None)
    assert chosen_or_in_a_file(spark, advised_before) == []
    assert rows(spark, advised_before, ADVICE)


def test_calibration_that_is_not_trusted_withdraws_the_advice_of_before(
    spark: SparkSession, advised_before: CommonSettings
) -> None:
    with pytest.raises(PipelineError, match="no advice: 400 requests could be compared") as caught:
        advise(spark, AdviseSettings(advised_before, REACHABLE, min_requests=401), lambda _: None)
    assert caught.value.code == ExitCode.CALIBRATION
    assert chosen_or_in_a_file(spark, advised_before) == rows(spark, advised_before, ADVICE) == []


def test_recorded_limits_are_replayed_with_the_part_that_unproven_clients_had(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Lists of 40 MiB that take a second to write: two fit into all of direct memory, one into half of it.
    waits = (0, 1_000_000, 2_000_000, 3_000_000)
    events = [
        {
            "at_us": number, "question_hash": f"q{number}", "client_id": f"c{number}", "direct_bytes": 40 * MIB,
            "write_us": 1_000_000, "direct_wait_us": wait, "total_us": 1_006_000 + wait,
            "unproven_readers_percent": 50,
        }
        for number, wait in enumerate(waits)
    ]  # fmt: skip
    settings = store(spark, tmp_path, *events)
    said: list[str] = []
    grid = Grid({"direct_bytes": (100 * MIB,)}, loads=(1,), fleets=(1,))
    found = whatif(spark, WhatifSettings(settings, grid), said.append)
    assert found.calibration.error == pytest.approx(0.0, abs=0.2)
    assert any("lists are replayed with 50 % of direct memory" in line for line in said)
