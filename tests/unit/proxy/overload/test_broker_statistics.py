"""Brokers' statistics: garbage, huge, slow, forbidden; heap after collections; backlogs of topics."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.overload import bounds
from proxy.overload.broker_questions import stats_path
from proxy.overload.broker_statistics import (
    LONGEST_ENTRY,
    BacklogBook,
    BrokerMetrics,
    BrokerMonitor,
    LeastOverTime,
    StatisticsUnavailable,
    backlog_sample,
    load_report_sample,
)
from proxy.overload.samples import BacklogSample, BrokerSample

METRICS = {
    "jvm_heap_used": 600, "jvm_max_memory": 1000, "jvm_max_direct_memory": 2000,
    "brk_default_pool_used": 1500, "brk_default_pool_allocated": 1990, "jvm_direct_memory_used": 1990,
}  # fmt: skip


def answer(*entries: object) -> bytes:
    return json.dumps(list(entries)).encode()


def broker_sample(body: bytes) -> BrokerSample:
    metrics = BrokerMetrics()
    for _ in metrics.read(body):
        pass
    return metrics.sample()


def test_direct_memory_in_use_counts_and_not_what_is_reserved() -> None:
    body = answer({"dimensions": {}, "metrics": {"brk_x": 1}}, {"metrics": METRICS})
    assert broker_sample(body) == BrokerSample(600, 1000, 1500, 2000)


def test_load_report_gives_the_heap_only() -> None:
    body = json.dumps({"memory": {"usage": 1.5, "limit": 4.0}, "directMemory": {"usage": 9, "limit": 10}}).encode()
    assert load_report_sample(body) == BrokerSample(1_572_864, 4_194_304, 0, 10_485_760)


@pytest.mark.threat("garbage-load-statistics")
@pytest.mark.parametrize(
    "body",
    [
        b"", b"\xff\xfe", b"[", b"{}", b"[]", b"null", b"[" * 100_000,
        b'[{"metrics": %b},]' % json.dumps(METRICS).encode(), b'[{"metrics": %b}]]' % json.dumps(METRICS).encode(),
        b'[{"metrics": %b} {}]' % json.dumps(METRICS).encode(), b'[{"metrics": %b}' % json.dumps(METRICS).encode(),
        b'[{"metrics": %b}, 12' % json.dumps(METRICS).encode(), b"[" + b" " * 100_000, b"[,{}]",
        b'{"memory": {"usage": 1, "limit": 0.0000001}}', b'{"memory": {"usage": 1, "limit": Infinity}}',
        answer({"metrics": {}}), answer({"metrics": METRICS | {"jvm_heap_used": "x"}}),
        answer({"metrics": METRICS | {"jvm_max_memory": 0}}), answer({"metrics": METRICS | {"jvm_heap_used": -1}}),
        answer({"metrics": METRICS | {"jvm_heap_used": 1e300}}), answer({"metrics": METRICS | {"jvm_heap_used": True}}),
        answer({"x": "y" * 2 * LONGEST_ENTRY}, {"metrics": METRICS}),
    ],
)  # fmt: skip
def test_statistics_that_are_garbage_are_an_error_of_ours(body: bytes) -> None:
    with pytest.raises(StatisticsUnavailable):
        broker_sample(body)
    with pytest.raises(StatisticsUnavailable):
        load_report_sample(body)


ENTRIES = st.recursive(st.none() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")), st.lists)


@given(st.lists(ENTRIES, max_size=20), st.integers(1, 40), st.sampled_from([None, 1]))
def test_a_list_is_read_whole_however_it_is_cut(entries: list[object], step: int, indent: int | None) -> None:
    body = json.dumps([*entries, {"metrics": METRICS}], indent=indent, ensure_ascii=False).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("proxy.overload.broker_statistics.STEP_BYTES", step)
        patch.setattr("proxy.overload.broker_statistics.STEP_ENTRIES", 3)
        assert broker_sample(body) == BrokerSample(600, 1000, 1500, 2000)


@pytest.mark.threat("garbage-load-statistics")
def test_statistics_of_many_small_values_are_refused_before_they_are_parsed() -> None:
    many = b"[],"
    body = b'{"backlogSize": 7, "memory": {"usage": 1, "limit": 2}, "x": [%b[]]}' % (many * bounds.MOST_STATS_VALUES)
    assert len(body) < bounds.LARGEST_STATS_BYTES
    for parse in (backlog_sample, load_report_sample):
        with pytest.raises(StatisticsUnavailable, match="more than 32768 values"):
            parse(body)
    with pytest.raises(StatisticsUnavailable, match="more than 1024 values in 16384 bytes"):
        broker_sample(answer(*[{"metrics": METRICS}] * 100)[:-1] + b",%b[]]" % (many * 5000))


@given(st.binary(max_size=200) | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(
    lambda value: json.dumps(value).encode()))  # fmt: skip
def test_no_answer_raises_anything_else(body: bytes) -> None:
    for parse in (broker_sample, load_report_sample, backlog_sample):
        try:
            parse(body)
        except StatisticsUnavailable:
            continue


def test_backlog_has_a_quota_or_none() -> None:
    assert backlog_sample(b'{"backlogSize": 7, "backlogQuotaLimitSize": 10}') == BacklogSample(7, 10)
    assert backlog_sample(b'{"backlogSize": 7, "backlogQuotaLimitSize": -1}') == BacklogSample(7, 0)
    assert backlog_sample(b'{"backlogSize": 7}') == BacklogSample(7, 0)


def test_heap_counts_as_collections_leave_it() -> None:
    least = LeastOverTime()
    assert [least.add(float(now), heap) for now, heap in enumerate([0.4, 0.9, 0.5, 0.95])] == [0.4] * 4
    # The collection of second 0 is more than 15 s ago: that of second 2 counts.
    assert least.add(16.0, 0.9) == 0.5


def test_brokers_that_do_not_answer_keep_their_last_value_for_five_samples() -> None:
    monitor = BrokerMonitor(5)
    monitor.take(0.0, {"one": BrokerSample(500, 1000, 0, 0)})
    assert [monitor.failed() for _ in range(7)] == [0.5] * 5 + [None] * 2
    assert monitor.take(9.0, {}) is None
    assert monitor.failures == 8


def test_one_broker_of_several_that_does_not_answer_keeps_its_last_value_for_five_samples() -> None:
    monitor, gone = BrokerMonitor(5), StatisticsUnavailable("gone")
    full, empty = BrokerSample(900, 1000, 0, 0), BrokerSample(100, 1000, 0, 0)
    assert monitor.take(0.0, {"one": full, "two": empty}) == 0.9
    assert [monitor.take(float(now), {"one": gone, "two": empty}) for now in range(1, 8)] == [0.9] * 5 + [0.1] * 2
    assert monitor.failures == 7
    # Its heap begins anew, too.
    assert monitor.take(8.0, {"one": full._replace(heap_used=990), "two": gone}) == 0.99


def test_topics_are_asked_for_in_turn() -> None:
    book = BacklogBook(2)
    book.seen(["a", "b", "c"])
    assert [book.next() for _ in range(3)] == ["a", "b", "a"]
    book.seen(["b", "c"])
    assert [book.next() for _ in range(3)] == ["b", "c", "b"]


def test_backlog_is_unknown_after_three_failures_in_a_row() -> None:
    book = BacklogBook(10)
    book.seen(["a"])
    book.take(0.0, "a", BacklogSample(1, 2))
    for expected in (True, True, False):
        book.failed("a")
        assert ("a" in book.known) is expected
    assert book.failures == 3


def test_backlog_of_long_ago_is_unknown() -> None:
    book = BacklogBook(10)
    book.seen(["a", "b"])
    book.take(0.0, "a", BacklogSample(1, 2))
    book.take(100.0, "b", BacklogSample(1, 2))
    book.take(200.0, "a", BacklogSample(3, 4))
    book.forget_old(399.0)
    assert set(book.known) == {"a", "b"}
    # A clock that goes back makes nothing older.
    book.forget_old(-1e6)
    book.forget_old(401.0)
    assert book.known == {"a": BacklogSample(3, 4)}


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
    with pytest.raises(StatisticsUnavailable):
        stats_path(topic)
