"""A stream's planning against a topic that is made up, without Spark and without a broker."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pipeline.sources.pulsar.catalog import Catalog
from pipeline.sources.pulsar.errors import TopicError
from pipeline.sources.pulsar.offsets import Ledger, PartitionState, Position, Range
from pipeline.sources.pulsar.options import PulsarSettings
from pipeline.sources.pulsar.source import EventsStreamReader

SETTINGS = PulsarSettings("pulsar://a", "persistent://t/n/x", "http://a")
ALL = ReadAllAvailable()


class MadeUpTopic(Catalog):
    """What the catalog says is what the test puts here."""

    def __init__(self, **partitions: list[tuple[int, int]]) -> None:
        self.partitions = partitions

    def states(self) -> dict[str, PartitionState]:
        found = {}
        for index, (name, held) in enumerate(self.partitions.items()):
            ledgers = tuple(Ledger(*ledger) for ledger in held)
            end = [Position(ledger.id, ledger.entries - 1) for ledger in ledgers if ledger.entries]
            found[name] = PartitionState(name, index, ledgers, (end or [Position(-1, -1)])[-1])
        return found

    def rows_per_entry(
        self, states: Mapping[str, PartitionState], starts: Mapping[str, Position], max_rows: int
    ) -> dict[str, float]:
        return dict.fromkeys(starts, 1.0)


def stream(topic: MadeUpTopic, settings: PulsarSettings = SETTINGS) -> EventsStreamReader:
    return EventsStreamReader(settings, topic)


def test_first_batch_that_comes_again_begins_where_it_did_whatever_was_written_since() -> None:
    topic = MadeUpTopic(a=[(5, 2)])
    crashed = stream(topic, replace(SETTINGS, start="latest"))
    noted = crashed.latestOffset(crashed.initialOffset(), ALL)
    topic.partitions = {"a": [(5, 4)], "b": [(6, 1)]}
    again = stream(topic, replace(SETTINGS, start="latest"))
    assert again.partitions(again.initialOffset(), noted) == []
    after = again.latestOffset(noted, ALL)
    assert after == {"a": [5, 3], "b": [6, -1]}
    assert [part.value for part in again.partitions(noted, after)] == [
        Range("a", 0, Position(5, 1), Position(5, 3), (5,))
    ]


def test_available_now_ends_with_what_was_there_when_it_began() -> None:
    topic = MadeUpTopic(a=[(5, 4)])
    reader = stream(topic)
    reader.prepareForTriggerAvailableNow()
    topic.partitions = {"a": [(5, 9)], "b": [(6, 1)]}
    offsets = [reader.initialOffset()]
    while (later := reader.latestOffset(offsets[-1], ReadMaxRows(3))) != offsets[-1]:
        offsets.append(later)
    assert [offset.get("a") for offset in offsets] == [None, [5, -1], [5, 2], [5, 3]]


def test_partition_that_is_gone_is_an_error() -> None:
    reader = stream(MadeUpTopic(a=[(7, 4)]))
    with pytest.raises(TopicError, match=r"knows partitions that the topic does not have \(b\)"):
        reader.latestOffset({"a": [7, 0], "b": [6, 0]}, ALL)
