"""The Pulsar source against a real broker, driven as Spark drives it: ledgers, partitions, time, trimming, hang-ups."""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipeline.sources.pulsar import reading, require_topic
from pipeline.sources.pulsar.errors import DataLossError, TopicError
from pipeline.sources.pulsar.source import EventsStreamReader
from tests.pulsar.admin import Admin
from tests.pulsar.event_topics import EventTopic, Stream
from tests.pulsar.proxy_process import Proxy
from tests.pulsar.standalone import Broker
from tests.support.patience import patient

pytestmark = pytest.mark.pulsar

ALL = ReadAllAvailable()


@pytest.fixture
def events(broker: Broker, admin: Admin, namespace: str) -> Callable[[int], EventTopic]:
    return lambda partitions: EventTopic(broker.service_url, admin, namespace, partitions)


def test_every_event_is_read_once_whatever_entries_and_ledgers_it_is_in(events: Callable[[int], EventTopic]) -> None:
    topic = events(2)
    topic.send(200)
    topic.roll(0)
    topic.send(60, batch=1)
    topic.roll(1)
    topic.roll(1)
    topic.send(100, batch=7)
    stream = Stream(topic.settings(max_entries=10))
    assert sorted(stream.run()) == list(range(360))
    assert len(stream.batches) > 4
    # An entry has 50 events at most.
    assert max(map(len, stream.batches)) <= 10 * 50
    topic.send(3)
    stream.run()
    assert sorted(stream.batches[-1]) == [360, 361, 362]


def test_trimmed_ledgers_are_an_error_or_a_warning(
    events: Callable[[int], EventTopic], capfd: pytest.CaptureFixture[str]
) -> None:
    topic = events(0)
    topic.send(10, batch=1)
    strict, lenient = Stream(topic.settings()), Stream(topic.settings(on_data_loss="warn"))
    reader = EventsStreamReader(topic.settings(max_entries=5))
    start = reader.latestOffset(reader.initialOffset(), ALL)
    half = reader.latestOffset(start, ALL)
    strict.offset = lenient.offset = half
    topic.roll()
    topic.send(3, batch=1)
    topic.roll()
    topic.send(4, batch=1)
    topic.trim()
    with pytest.raises(DataLossError, match=f"{topic.name}: events after .* are gone.*--on-data-loss warn"):
        strict.run()
    # A batch that was planned before, and comes again after a crash.
    with pytest.raises(DataLossError, match="are gone"):
        reader.partitions(start, half)
    assert lenient.run() == [13, 14, 15, 16]
    assert f"warning: {topic.name}: events after" in capfd.readouterr().err


def test_ledgers_that_were_read_may_be_trimmed(events: Callable[[int], EventTopic]) -> None:
    topic = events(0)
    topic.send(10)
    stream = Stream(topic.settings())
    stream.run()
    topic.roll()
    assert stream.run() == []
    topic.trim()
    topic.send(5)
    assert stream.run() == [10, 11, 12, 13, 14]


def test_ledger_that_goes_while_a_task_reads_fails_the_task(events: Callable[[int], EventTopic]) -> None:
    topic = events(0)
    topic.send(10)
    topic.roll()
    topic.send(1)
    reader = EventsStreamReader(topic.settings())
    start = reader.latestOffset(reader.initialOffset(), ALL)
    (task,) = reader.partitions(start, reader.latestOffset(start, ALL))
    topic.trim()
    with pytest.raises(DataLossError, match="were trimmed while they were to be read"):
        list(reader.read(task))


def test_topic_that_does_not_exist_is_not_made_by_asking(events: Callable[[int], EventTopic], admin: Admin) -> None:
    topic = events(0)
    missing = replace(topic.settings(), topic=f"{topic.name}-missing")
    with pytest.raises(TopicError, match=r"-missing does not exist: create it"):
        require_topic(missing)
    assert admin.topics(topic.name.removeprefix("persistent://").rpartition("/")[0]) == [topic.name]


def test_topic_that_keeps_its_messages_may_be_read_and_another_may_not(events: Callable[[int], EventTopic]) -> None:
    topic = events(2)
    require_topic(topic.settings())
    topic.keep_nothing()
    with pytest.raises(TopicError, match="does not keep its messages: retention is 0 min and 0 MB"):
        require_topic(topic.settings())


def test_broker_that_is_away_is_told(events: Callable[[int], EventTopic]) -> None:
    topic = events(0)
    with pytest.raises(TopicError, match=r"pulsar://127\.0\.0\.1:1: the broker does not answer"):
        require_topic(replace(topic.settings(), service_url="pulsar://127.0.0.1:1"))


def test_broker_that_stops_in_mid_read_ends_the_task_in_bounded_time(
    events: Callable[[int], EventTopic],
    new_proxy: Callable[[Mapping[str, str]], Proxy],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # To a client the proxy is the broker; stopping it harms no other test.
    topic = events(0)
    topic.send(500, batch=1)
    proxy = new_proxy({})
    monkeypatch.setattr(reading, "BATCH_ROWS", 10)
    monkeypatch.setattr(reading, "QUEUE", 10)
    seconds = round(patient(3))
    monkeypatch.setattr(reading, "SILENCE_SECONDS", seconds)
    reader = EventsStreamReader(replace(topic.settings(), service_url=proxy.service_url))
    start = reader.latestOffset(reader.initialOffset(), ALL)
    (task,) = reader.partitions(start, reader.latestOffset(start, ALL))
    batches = reader.read(task)
    assert next(batches).num_rows == 10
    os.kill(proxy.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(TopicError, match=rf"brought nothing for {seconds} s|does not answer"):
            list(batches)
    finally:
        os.kill(proxy.process.pid, signal.SIGCONT)
