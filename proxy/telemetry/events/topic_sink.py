"""The store of events in a Pulsar topic, through pulsar-client (extra `events`).

Rule: one block is under way at a time, so that the memory of the client library is bounded by it, and a block counts as
written when the broker has acknowledged all of it. A block of which the broker did not say so is sent once more, over a
new connection and to the next partition: an event may be there twice, never be lost in silence; (proxy_id, boot_id,
seq) tells who is who. Everything here may block, and is called by the sink's own thread only.

One message is one event as JSON. Its property `schema_version` says which, without a look inside.
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

# For a broker's answer to anything but a message.
OPERATION_SECONDS: Final = 10
# For the acknowledgement of a block: the broker may be moving the topic.
SEND_SECONDS: Final = 20
PROPERTIES: Final = {"schema_version": str(SCHEMA_VERSION)}
# More than a block, so that a block is one batch: one entry in the ledger, and one answer for all of it.
MOST_MESSAGES: Final = 100_000

Credentials = Callable[[], "pulsar.Authentication | None"]


@dataclass(frozen=True, slots=True)
class TopicTls:
    """How certificates of brokers are checked, and the certificate that is shown them; empty paths: none."""

    trust_path: str = ""
    certificate_path: str = ""
    key_path: str = ""
    allow_insecure: bool = False
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Which topic, where."""

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
        """Do nothing: the first block connects, so that a cluster without events is left alone."""

    def write(self, lines: list[bytes], now: float) -> int:
        """Send a block and wait until it is acknowledged; raises StoreError."""
        try:
            producer = self._producer()
            for line in lines:
                # Without a callback: each would need the interpreter, and the flush tells the same of all.
                producer.send_async(line[:-1], None, properties=PROPERTIES)
            producer.flush()
        except Exception as error:
            # pulsar-client has no common class of errors, and what a broken one can still do nobody says.
            self._turn += 1
            self._disconnect()
            raise StoreError(f"{self._settings.topic}: {error or type(error).__name__}".lower()) from error
        return sum(map(len, lines))

    def tick(self, now: float) -> None:
        """Do nothing: the client library keeps its connection alive."""

    def close(self) -> None:
        """Disconnect; all blocks are acknowledged."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                client.close()

    def _producer(self) -> "pulsar.Producer":
        """Give the producer whose turn it is."""
        client = self._connected()
        topic = self._partitions[self._turn % len(self._partitions)]
        if topic not in self._producers:
            self._producers[topic] = _new_producer(client, topic)
        self._turn += 1
        return self._producers[topic]

    def _connected(self) -> "pulsar.Client":
        if self._client is None:
            self._client = _new_client(self._settings, self._credentials())
            # One producer a partition, in turn: only of a single partition a flush tells whether it failed.
            self._partitions = list(self._client.get_topic_partitions(self._settings.topic))
            if not self._partitions:
                raise StoreError(f"{self._settings.topic}: the broker names no partition")
        return self._client

    def _disconnect(self) -> None:
        """Forget the connection at once: a close would wait for the broker that has just failed."""
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
        # Its lines are not those of the proxy's log; what matters of them is in its exceptions.
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
        # Measured on events: 160 bytes each instead of 90 by ZSTD, for two thirds of its time.
        compression_type=pulsar.CompressionType.LZ4,
        max_pending_messages=MOST_MESSAGES,
        batching_enabled=True,
        batching_max_messages=MOST_MESSAGES,
        batching_max_allowed_size_in_bytes=2 * BLOCK_BYTES,
        # The flush sends them.
        batching_max_publish_delay_ms=SEND_SECONDS * 1000,
    )
