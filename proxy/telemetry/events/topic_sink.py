"""Store events in a Pulsar topic, through pulsar-client (extra `events`).

Rule: one block is sent at a time, which bounds the memory of the client library. A block counts as written when the
broker has acknowledged all of it; a block without acknowledgement is sent again, over a new connection and to the next
partition. So an event may be stored twice, but is never lost unnoticed; (proxy_id, boot_id, seq) identifies duplicates.
Every call here may block, so only the sink's own thread calls.

A message is one event as JSON, with the schema's version as property `schema_version`.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from eventlog.drain import BLOCK_BYTES, StoreError
from eventlog.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    import pulsar

__all__ = ["SEND_SECONDS", "TopicEventStore", "TopicSettings", "TopicTls"]

# Time-out for a broker's answer to anything but a message.
OPERATION_SECONDS: Final = 10
# Time-out for the acknowledgement of a block: the broker may be moving the topic.
SEND_SECONDS: Final = 20
PROPERTIES: Final = {"schema_version": str(SCHEMA_VERSION)}
# Larger than a block, so that a block is one batch: one entry in the ledger, and one acknowledgement.
MOST_MESSAGES: Final = 100_000

Credentials = Callable[[], "pulsar.Authentication | None"]


@dataclass(frozen=True, slots=True)
class TopicTls:
    """How to verify brokers' certificates, and which certificate to present; empty paths: none."""

    trust_path: str = ""
    certificate_path: str = ""
    key_path: str = ""
    allow_insecure: bool = False
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The topic, the cluster's URL, and the TLS settings."""

    topic: str
    service_url: str
    tls: TopicTls = TopicTls()


class TopicEventStore:
    """Writes events to a topic (`eventlog.drain.Store`)."""

    def __init__(self, settings: TopicSettings, credentials: Credentials) -> None:
        self._settings = settings
        self._credentials = credentials
        self._client: pulsar.Client | None = None
        self._partitions: list[str] = []
        self._producers: dict[str, pulsar.Producer] = {}
        self._turn = 0

    def open(self) -> None:
        """Skip: the first block connects, so a cluster that gets no events gets no connection."""

    def write(self, lines: list[bytes], now: float) -> int:
        """Send a block and wait until it is acknowledged; raises StoreError."""
        try:
            producer = self._producer()
            for line in lines:
                # No callback: each would need the interpreter lock, and `flush` reports the failure of any message.
                producer.send_async(line[:-1], None, properties=PROPERTIES)
            producer.flush()
        except Exception as error:
            # pulsar-client has no common error class, and a client in an error state may not recover: reconnect.
            self._turn += 1
            self._disconnect()
            raise StoreError(f"{self._settings.topic}: {error or type(error).__name__}".lower()) from error
        return sum(map(len, lines))

    def tick(self, now: float) -> None:
        """Skip: the client library keeps its connection alive."""

    def close(self) -> None:
        """Disconnect; all blocks have been acknowledged."""
        client, self._client = self._client, None
        # A producer keeps the library's threads and descriptors.
        self._producers.clear()
        if client is not None:
            with suppress(Exception):
                client.close()

    def _producer(self) -> "pulsar.Producer":
        """Return the producer of the next partition in turn."""
        client = self._connected()
        topic = self._partitions[self._turn % len(self._partitions)]
        if topic not in self._producers:
            self._producers[topic] = _new_producer(client, topic)
        self._turn += 1
        return self._producers[topic]

    def _connected(self) -> "pulsar.Client":
        if self._client is None:
            self._client = _new_client(self._settings, self._credentials())
            # A producer for each partition, in turn: `flush` reports failures of a single partition only.
            self._partitions = list(self._client.get_topic_partitions(self._settings.topic))
            if not self._partitions:
                raise StoreError(f"{self._settings.topic}: the broker names no partition")
        return self._client

    def _disconnect(self) -> None:
        """Shut the connection down at once: `close` would wait for the broker that has just failed."""
        client, self._client = self._client, None
        self._producers.clear()
        if client is not None:
            with suppress(Exception):
                client.shutdown()


def _new_client(settings: TopicSettings, authentication: "pulsar.Authentication | None") -> "pulsar.Client":
    import pulsar

    tls = settings.tls
    return pulsar.Client(
        settings.service_url,
        authentication=authentication,
        operation_timeout_seconds=OPERATION_SECONDS,
        stats_interval_in_seconds=0,
        # The library logs in a format of its own; its exceptions contain what matters.
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
        tls_trust_certs_file_path=tls.trust_path or None,
        tls_certificate_file_path=tls.certificate_path or None,
        tls_private_key_file_path=tls.key_path or None,
        tls_allow_insecure_connection=tls.allow_insecure,
        tls_validate_hostname=tls.check_hostname,
    )


def _new_producer(client: "pulsar.Client", topic: str) -> "pulsar.Producer":
    import pulsar

    return client.create_producer(
        topic,
        send_timeout_millis=SEND_SECONDS * 1000,
        # Measured on events: LZ4 makes 160 bytes of each and ZSTD 90, but LZ4 takes two thirds of ZSTD's time.
        compression_type=pulsar.CompressionType.LZ4,
        max_pending_messages=MOST_MESSAGES,
        batching_enabled=True,
        batching_max_messages=MOST_MESSAGES,
        batching_max_allowed_size_in_bytes=2 * BLOCK_BYTES,
        # `flush` sends the batch, not this delay.
        batching_max_publish_delay_ms=SEND_SECONDS * 1000,
    )
