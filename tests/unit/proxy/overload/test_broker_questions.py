"""Brokers' statistics: garbage, huge, slow, forbidden; heap after collections; backlogs of topics."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.brokers.admin_port import AdminUnavailable
from proxy.overload import bounds
from proxy.overload.broker_questions import (
    BrokerMemory,
    backlog_sample,
    find_metrics,
    load_report_memory,
    metrics_memory,
    stats_path,
)
from proxy.overload.samples import BacklogSample

METRICS = {
    "jvm_heap_used": 600, "jvm_max_memory": 1000, "jvm_max_direct_memory": 2000,
    "brk_default_pool_used": 1500, "brk_default_pool_allocated": 1990, "jvm_direct_memory_used": 1990,
}  # fmt: skip


def answer(*entries: object) -> bytes:
    return json.dumps(list(entries)).encode()


def broker_memory(body: bytes) -> tuple[float, float]:
    found: dict[bytes, int] = {}
    for _ in find_metrics(body, found):
        pass
    return metrics_memory(found)


def test_direct_memory_in_use_counts_and_not_what_is_reserved() -> None:
    body = answer({"dimensions": {}, "metrics": {"brk_x": 1}}, {"metrics": METRICS})
    assert broker_memory(body) == (0.6, 0.75)


def test_load_report_gives_the_heap_only() -> None:
    body = json.dumps({"memory": {"usage": 1.5, "limit": 4.0}, "directMemory": {"usage": 9, "limit": 10}}).encode()
    assert load_report_memory(body) == (0.375, 0.0)


@pytest.mark.threat("garbage-load-statistics")
@pytest.mark.parametrize(
    "body",
    [
        b"", b"\xff\xfe", b"[", b"{}", b"[]", b"null", b"[" * 100_000,
        b"[" + b" " * 100_000, b"[,{}]", b'[{"metrics": {"jvm_max_memory": 1000, "jvm_heap_used": 60',
        b'{"memory": {"usage": 1, "limit": 0.0000001}}', b'{"memory": {"usage": 1, "limit": Infinity}}',
        answer({"metrics": {}}), answer({"metrics": METRICS | {"jvm_heap_used": "x"}}),
        answer({"metrics": METRICS | {"jvm_max_memory": 0}}), answer({"metrics": METRICS | {"jvm_heap_used": -1}}),
        answer({"metrics": METRICS | {"jvm_heap_used": 1e300}}), answer({"metrics": METRICS | {"jvm_heap_used": True}}),
        answer({"metrics": METRICS | {"jvm_heap_used": [6]}}), answer(json.dumps({"metrics": METRICS})),
    ],
)  # fmt: skip
def test_statistics_that_are_garbage_are_an_error_of_ours(body: bytes) -> None:
    with pytest.raises(AdminUnavailable):
        broker_memory(body)
    with pytest.raises(AdminUnavailable):
        load_report_memory(body)


TEXTS = st.text(st.characters(codec="utf-8")) | st.sampled_from(list(METRICS))
ENTRIES = st.recursive(st.none() | st.floats(allow_nan=False) | TEXTS, st.lists)


@given(st.lists(ENTRIES, max_size=20), st.integers(1, 40), st.sampled_from([None, 1, 9]))
def test_an_answer_is_read_whole_however_it_is_cut(entries: list[object], step: int, indent: int | None) -> None:
    # Texts have the names of keys, with and without quotation marks; who names a key names no number.
    quoted = json.dumps({"jvm_heap_used": 7})
    body = json.dumps([*entries, quoted, {"metrics": METRICS}], indent=indent, ensure_ascii=False).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("proxy.overload.broker_questions.STEP_BYTES", step)
        assert broker_memory(body) == (0.6, 0.75)


@pytest.mark.threat("garbage-load-statistics")
def test_statistics_of_many_small_values_are_refused_before_they_are_parsed() -> None:
    many = b"[],"
    body = b'{"backlogSize": 7, "memory": {"usage": 1, "limit": 2}, "x": [%b[]]}' % (many * bounds.MOST_STATS_VALUES)
    assert len(body) < bounds.LARGEST_STATS_BYTES
    for parse in (backlog_sample, load_report_memory):
        with pytest.raises(AdminUnavailable, match="more than 32768 values"):
            parse(body)


@given(st.binary(max_size=200) | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(
    lambda value: json.dumps(value).encode()))  # fmt: skip
def test_no_answer_raises_anything_else(body: bytes) -> None:
    for parse in (broker_memory, load_report_memory, backlog_sample):
        try:
            parse(body)
        except AdminUnavailable:
            continue


def test_backlog_has_a_quota_or_none() -> None:
    assert backlog_sample(b'{"backlogSize": 7, "backlogQuotaLimitSize": 10}') == BacklogSample(7, 10)
    assert backlog_sample(b'{"backlogSize": 7, "backlogQuotaLimitSize": -1}') == BacklogSample(7, 0)
    assert backlog_sample(b'{"backlogSize": 7}') == BacklogSample(7, 0)


def test_heap_counts_as_collections_leave_it() -> None:
    memory, found = BrokerMemory(), []
    for now, heap in enumerate([40, 90, 50, 95]):
        memory.take(float(now), heap / 100, 0.0)
        found.append(memory.ratio)
    assert found == [0.4] * 4
    # The collection of second 0 is more than 15 s ago: that of second 2 counts.
    memory.take(16.0, 0.9, 0.0)
    assert memory.ratio == 0.5
    memory.take(17.0, 0.9, 0.7)
    assert memory.ratio == 0.7


@pytest.mark.parametrize(
    ("topic", "path"),
    [
        ("persistent://t/n/a b", "/admin/v2/persistent/t/n/a%20b/stats"),
        ("t/n/a", "/admin/v2/persistent/t/n/a/stats"),
        ("non-persistent://t/n/a/b", "/admin/v2/non-persistent/t/n/a%2Fb/stats"),
    ],
)
def test_path_of_a_topic_is_quoted(topic: str, path: str) -> None:
    assert stats_path(topic) == path


@pytest.mark.parametrize("topic", ["", "x", "persistent://t/../a", "file://t/n/a", "persistent://t//a", "t/n/\ud800"])
def test_name_that_is_no_topic_is_not_asked_for(topic: str) -> None:
    with pytest.raises(AdminUnavailable):
        stats_path(topic)
