"""Own a topic of events: made to keep them, filled, rolled over, trimmed; and what is read of it without Spark."""

import json
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pulsar
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipeline.sources.pulsar.options import PulsarSettings
from pipeline.sources.pulsar.source import EventsStreamReader
from tests.pulsar.admin import Admin, AdminError
from tests.pulsar.messages import connect
from tests.support.pipeline.event_lines import event


class EventTopic:
    """A topic, and the numbers of the events that were sent to it."""

    def __init__(self, service_url: str, admin: Admin, namespace: str, partitions: int) -> None:
        self.name = f"persistent://{namespace}/events"
        self.sent = 0
        self._admin = admin
        self._namespace = namespace
        self._service_url = service_url
        admin.keep_messages(namespace)
        admin.create_topic(self.name, partitions)

    def settings(self, **more: Any) -> PulsarSettings:
        return PulsarSettings(self._service_url, self.name, self._admin.url, **more)

    def send(self, count: int, batch: int = 50) -> None:
        """Send so many events, `batch` in an entry; 1: each in an entry that is no batch."""
        results: set[object] = set()
        with closing(connect(self._service_url)) as client:
            producer = client.create_producer(
                self.name,
                batching_enabled=batch > 1,
                batching_max_messages=max(2, batch),
                batching_max_publish_delay_ms=60_000,
                block_if_queue_full=True,
                compression_type=pulsar.CompressionType.ZSTD,
            )
            for seq in range(self.sent, self.sent + count):
                content = json.dumps(event(seq)).encode()
                producer.send_async(content, lambda result, _: results.add(result))
            producer.flush()
        assert results <= {pulsar.Result.Ok}, results
        self.sent += count

    def roll(self, partition: int | None = None) -> None:
        """Close the ledger that is written to, and have another."""
        self._admin.call("PUT", f"{self._path(partition)}/unload")
        self.wait_loaded(partition)

    def wait_loaded(self, partition: int | None = None) -> None:
        """Ask until the topic is served again."""
        for _ in range(200):
            try:
                self._admin.call("GET", f"{self._path(partition)}/internalStats")
            except AdminError:
                continue
            return
        raise AssertionError(f"{self.name} was not served again")

    def trim(self, partition: int | None = None) -> None:
        """Have the broker delete every ledger that is closed, as it does when retention is over."""
        self.keep_nothing()
        before = self.ledgers(partition)
        for _ in range(200):
            self._admin.call("POST", f"{self._path(partition)}/trim")
            if self.ledgers(partition) == before[-1:]:
                break
        else:
            raise AssertionError(f"{self.name} still has {self.ledgers(partition)}")
        self._admin.keep_messages(self._namespace)

    def ledgers(self, partition: int | None = None) -> list[int]:
        stats = self._admin.call("GET", f"{self._path(partition)}/internalStats")
        return [ledger["ledgerId"] for ledger in stats["ledgers"]]

    def grow(self, partitions: int) -> None:
        self._admin.call("POST", f"{self._path(None)}/partitions", partitions)

    def keep_nothing(self) -> None:
        nothing = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
        self._admin.call("POST", f"/admin/v2/namespaces/{self._namespace}/retention", nothing)

    def _path(self, partition: int | None) -> str:
        path = f"/admin/v2/persistent/{self._namespace}/events"
        return path if partition is None else f"{path}-partition-{partition}"


@dataclass
class Stream:
    """A stream as Spark drives it, batch by batch; `offset` is what its checkpoint would hold."""

    settings: PulsarSettings
    offset: dict[str, Any] | None = None
    batches: list[list[int]] = field(default_factory=list)

    def run(self) -> list[int]:
        """Read until nothing is left, each batch by a new reader as after a crash; give the events in order."""
        read: list[int] = []
        while True:
            reader = EventsStreamReader(self.settings)
            start = self.offset if self.offset is not None else reader.initialOffset()
            end = reader.latestOffset(start, ReadAllAvailable())
            if end == start:
                self.offset = end
                return read
            self.batches.append(numbers(reader, reader.partitions(start, end)))
            read += self.batches[-1]
            self.offset = end


def read_all(settings: PulsarSettings) -> list[int]:
    """Read all that a topic has now."""
    return Stream(settings).run()


def numbers(reader: EventsStreamReader, parts: Any) -> list[int]:
    return [
        json.loads(value.as_py())["seq"]
        for part in parts
        for batch in reader.read(part)
        for value in batch.column("value")
    ]
