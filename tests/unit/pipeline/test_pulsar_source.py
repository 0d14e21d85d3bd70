"""A stream's planning against a topic that is made up, without Spark and without a broker."""

from dataclasses import replace

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipeline.sources.pulsar.cluster import Cluster
from pipeline.sources.pulsar.errors import TopicError
from pipeline.sources.pulsar.offsets import NOWHERE, Ledger, PartitionState, Position, Range
from pipeline.sources.pulsar.options import PulsarSettings
from pipeline.sources.pulsar.source import EventsStreamReader

SETTINGS = PulsarSettings("pulsar://a", "persistent://t/n/x", "http://a")
ALL = ReadAllAvailable()


class MadeUpTopic(Cluster):
    """What the cluster says is what the test puts here: ledgers and how many entries they have."""

    def __init__(self, **partitions: list[tuple[int, int]]) -> None:
        super().__init__(SETTINGS)
        self.partitions = partitions

    def states(self) -> dict[str, PartitionState]:
        found = {}
        for name, held in self.partitions.items():
            ledgers = tuple(Ledger(*ledger) for ledger in held)
            end = [Position(ledger.id, ledger.entries - 1) for ledger in ledgers if ledger.entries]
            found[name] = PartitionState(name, ledgers, (end or [NOWHERE])[-1])
        return found


def stream(topic: MadeUpTopic, settings: PulsarSettings = SETTINGS) -> EventsStreamReader:
    return EventsStreamReader(settings, topic)


def test_batch_that_comes_again_is_the_same_batch_whatever_was_written_since() -> None:
    topic = MadeUpTopic(a=[(5, 2)])
    crashed = stream(topic)
    begun = crashed.latestOffset(crashed.initialOffset(), ALL)
    planned = crashed.latestOffset(begun, ALL)
    topic.partitions = {"a": [(5, 4), (7, 1)], "b": [(6, 1)]}
    again = stream(topic)
    assert again.partitions(again.initialOffset(), begun) == []
    assert [part.value for part in again.partitions(begun, planned)] == [
        Range("a", Position(5, -1), Position(5, 1), (5,))
    ]
    after = again.latestOffset(planned, ALL)
    assert [part.value for part in again.partitions(planned, after)] == [
        Range("a", Position(5, 1), Position(7, 0), (5, 7))
    ]
    # A new partition is only put to its beginning.
    assert after["b"] == [6, -1, -1]


def test_available_now_ends_with_what_was_there_when_it_began() -> None:
    topic = MadeUpTopic(a=[(5, 4)])
    reader = stream(topic, replace(SETTINGS, max_entries=3))
    reader.prepareForTriggerAvailableNow()
    topic.partitions = {"a": [(5, 9)], "b": [(6, 1)]}
    offsets = [reader.initialOffset()]
    while (later := reader.latestOffset(offsets[-1], ALL)) != offsets[-1]:
        offsets.append(later)
    assert [offset.get("a", [])[:2] for offset in offsets] == [[], [5, -1], [5, 2], [5, 3]]


def test_partition_that_is_gone_is_an_error() -> None:
    reader = stream(MadeUpTopic(a=[(7, 4)]))
    with pytest.raises(TopicError, match=r"knows partitions that the topic does not have \(b\)"):
        reader.latestOffset({"a": [7, 0, -1], "b": [6, 0, -1]}, ALL)


def test_checkpoint_of_event_files_is_an_error() -> None:
    with pytest.raises(TopicError, match="the checkpoint is of another source: begin with a new --checkpoint"):
        stream(MadeUpTopic(a=[(7, 4)])).latestOffset({"logOffset": 0}, ALL)
