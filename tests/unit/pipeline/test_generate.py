import gzip
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from benchmarks.pipeline.generate.chunk import ARROW_SCHEMA, chunk_events
from benchmarks.pipeline.generate.output import write_files, write_parquet
from benchmarks.pipeline.generate.settings import GenerateSettings
from eventlog.schema import CLOSE_CAUSES, FIELDS, KINDS, OUTCOMES, STAGES
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.model import MIB, Limits

SETTINGS = GenerateSettings(events=6_000, proxies=2, clients=100, tenants=5, namespaces=20)
PARTS = [field.name for field in FIELDS if field.name.endswith("_wait_us")] + ["upstream_us", "read_us", "write_us"]


def events_of(settings: GenerateSettings = SETTINGS) -> pd.DataFrame:
    parts: list[pd.DataFrame] = [chunk_events(settings, chunk).to_pandas() for chunk in settings.chunks()]
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def events() -> pd.DataFrame:
    return events_of()


def ignore(_: int) -> None:
    """Nobody looks at the progress."""


def test_there_are_as_many_as_asked_for(events: pd.DataFrame) -> None:
    assert len(events) == 6_000
    assert sum(chunk.events for chunk in GenerateSettings(events=1_000_001, proxies=3).chunks()) == 1_000_001


def test_fewer_events_than_proxies_are_no_error() -> None:
    assert len(events_of(GenerateSettings(events=1, clients=300))) == 1


def test_same_seed_gives_the_same_events(events: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(events, events_of())


def test_another_seed_gives_others(events: pd.DataFrame) -> None:
    other = GenerateSettings(events=6_000, proxies=2, clients=100, tenants=5, namespaces=20, seed=2)
    assert not events["ts_us"].equals(events_of(other)["ts_us"])


def test_parts_of_a_life_add_up(events: pd.DataFrame) -> None:
    assert (events[PARTS].fillna(0).sum(axis=1) == events["total_us"]).all()
    assert (events[PARTS].fillna(0) >= 0).all().all()


def test_one_member_of_each_group_carries_its_cost(events: pd.DataFrame) -> None:
    lists = events[events["kind"] == "get_topics"]
    groups = lists.groupby(["proxy_id", "group_id"])
    assert (groups["carries_cost"].sum() == 1).all()
    assert (groups.size() == groups["group_size"].first()).all()
    assert (groups["coalesced"].sum() == groups.size() - 1).all()
    assert groups["question_hash"].nunique().max() == 1
    assert groups["principal"].nunique().max() == 1


def test_cost_is_carried_by_the_last_to_end(events: pd.DataFrame) -> None:
    lists = events[events["kind"] == "get_topics"]
    end = lists["ts_us"] + lists["total_us"]
    last = end.groupby([lists["proxy_id"], lists["group_id"]]).transform("max")
    assert (end == last)[lists["carries_cost"]].all()
    assert lists[lists["carries_cost"]]["heap_byte_us"].notna().all()
    assert lists[~lists["carries_cost"]]["heap_byte_us"].isna().all()


def test_storms_share_answers(events: pd.DataFrame) -> None:
    assert events["coalesced"].sum() > 100


def test_numbers_of_a_proxy_have_no_gaps_and_follow_the_ends(events: pd.DataFrame) -> None:
    for _, one in events.groupby("proxy_id"):
        assert sorted(one["seq"]) == list(range(len(one)))
        ends = (one["ts_us"] + one["total_us"]).to_numpy()[np.argsort(one["seq"].to_numpy())]
        assert (np.diff(ends) >= 0).all()


def test_words_are_those_of_the_schema(events: pd.DataFrame) -> None:
    for name, words in (
        ("kind", KINDS),
        ("outcome", OUTCOMES),
        ("outcome_stage", STAGES),
        ("close_cause", CLOSE_CAUSES),
    ):
        assert set(events[name].dropna()) <= set(words)
    assert (events["outcome_stage"].isna() == (events["outcome"] == "ok")).all()


def test_only_nullable_fields_are_null(events: pd.DataFrame) -> None:
    for field in FIELDS:
        assert field.nullable or events[field.name].notna().all(), field.name


def test_refused_requests_have_neither_answer_nor_writing(events: pd.DataFrame) -> None:
    refused = events[events["outcome"].isin(["timeout", "queue_full"])]
    assert len(refused)
    assert refused[["response_bytes", "write_us"]].isna().all().all()


@pytest.mark.timeout(600)  # the kernel is compiled
def test_simulated_waits_come_from_the_limits() -> None:
    def waited(heap_bytes: int) -> int:
        limits = Limits(heap_bytes=heap_bytes, coalescing=False)
        settings = GenerateSettings(events=2_000, proxies=1, clients=300, simulate=True, limits=limits)
        return int(events_of(settings)["heap_wait_us"].sum())

    assert waited(100_000 * MIB) == 0
    assert waited(1 * MIB) > 0


@pytest.mark.timeout(600)  # the kernel is compiled
def test_simulated_memory_in_use_is_what_was_booked() -> None:
    limits = Limits(heap_bytes=100 * MIB, coalescing=False)
    events = events_of(GenerateSettings(events=2_000, proxies=1, clients=300, simulate=True, limits=limits))
    lists = events[events["kind"] == "get_topics"]
    # Nobody waited, so that this is the sum of what each had asked for by then.
    assert not lists["heap_wait_us"].sum()
    # Nor does a replay find waits that were drawn.
    assert not lists["reader_wait_us"].sum()
    begin = lists["ts_us"] + lists[["client_wait_us", "group_wait_us"]].sum(axis=1)
    grown = begin + lists[["broker_wait_us", "upstream_us"]].sum(axis=1)
    end = grown + lists[["read_us", "reader_wait_us"]].sum(axis=1)
    for _, one in lists.iloc[::100].iterrows():
        asking, reading = (
            (since <= one["ts_us"]) & (one["ts_us"] < until) for since, until in ((begin, grown), (grown, end))
        )
        booked = lists["heap_estimate_bytes"][asking].sum() + lists["heap_actual_bytes"][reading].sum()
        assert one["heap_used_bytes"] == booked


@pytest.mark.timeout(600)  # the kernel is compiled
def test_list_that_is_refused_for_its_size_tells_it_as_a_proxy_does() -> None:
    limits = Limits(direct_bytes=64 * 1024, coalescing=False)
    events = events_of(GenerateSettings(events=2_000, proxies=1, clients=300, simulate=True, limits=limits))
    refused = events[events["outcome"] == "oversize"]
    assert len(refused)
    assert (refused["heap_actual_bytes"] > 64 * 1024).all()
    assert refused[["topic_count", "direct_bytes", "response_bytes"]].isna().all().all()


def test_table_is_laid_out_by_day_and_hour(tmp_path: Path) -> None:
    slow = GenerateSettings(events=500, proxies=1, clients=50, rate=0.05)
    assert write_parquet(slow, tmp_path, ignore) == 500
    hours = sorted((tmp_path / "events").glob("date=*/hour=*"))
    assert [path.parent.name for path in hours] == ["date=2026-01-01"] * len(hours)
    assert len(hours) == 3
    for path in hours:
        part = pq.read_table(next(path.iterdir()), partitioning=None)
        assert part.schema.equals(ARROW_SCHEMA)
        moments = pd.to_datetime(part["ts_us"].to_pandas(), unit="us")
        assert set(moments.dt.hour) == {int(path.name.removeprefix("hour="))}


def test_files_hold_what_the_table_would(tmp_path: Path, events: pd.DataFrame) -> None:
    assert write_files(SETTINGS, tmp_path, ignore) == 6_000
    rows = [
        json.loads(line)
        for path in sorted(tmp_path.glob("*.jsonl.gz"))
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    assert [list(row) for row in rows[:2]] == [ARROW_SCHEMA.names] * 2
    read = {(row["proxy_id"], row["seq"]): row["total_us"] for row in rows}
    assert read == dict(zip(zip(events["proxy_id"], events["seq"], strict=True), events["total_us"], strict=True))


def test_nothing_is_written_into_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "other").touch()
    with pytest.raises(PipelineError, match="expected a new or an empty directory"):
        write_parquet(SETTINGS, tmp_path, ignore)


@pytest.mark.parametrize(
    "odd",
    [
        {"events": 0},
        {"proxies": 0},
        {"clients": 1},
        {"rate": 0.0},
        {"rate": math.nan},
        {"rate": math.inf},
        {"rate": 1e-9},
        {"zipf": math.nan},
        {"zipf": math.inf},
        {"zipf": -1.0},
        {"storm_share": 0.9, "watch_share": 0.2},
        {"storm_share": math.nan},
    ],
    ids=str,
)
def test_numbers_that_make_no_trace_are_refused(odd: dict[str, float]) -> None:
    with pytest.raises(PipelineError, match="--") as raised:
        GenerateSettings(**({"events": 10, "proxies": 2} | odd))  # type: ignore[arg-type]
    assert raised.value.code == ExitCode.USAGE
