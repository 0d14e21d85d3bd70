"""The work of one task: the messages of a range, as Arrow batches.

Rules: a message of the range is given once or the task fails; it fails when a ledger is gone, and when the broker
brings nothing for SILENCE_SECONDS. Memory: the receiver queue (QUEUE messages, and one entry more) and one batch, of
BATCH_ROWS rows or BATCH_BYTES and one message more.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pulsar
import pyarrow as pa

from pipeline.sources.pulsar.cluster import Cluster
from pipeline.sources.pulsar.errors import DataLossError, TopicError
from pipeline.sources.pulsar.login import Credentials
from pipeline.sources.pulsar.offsets import Position, Range
from pipeline.sources.pulsar.options import PulsarSettings

SILENCE_SECONDS: Final = 60
QUEUE: Final = 1000
BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 8 << 20
_STEP_MILLIS: Final = 1000

SCHEMA: Final = pa.schema(
    {"value": pa.binary(), "topic": pa.string(), "ledger_id": pa.int64(), "entry_id": pa.int64()},
)


@contextmanager
def connected(settings: PulsarSettings, seconds: int) -> Iterator[pulsar.Client]:
    """Yield a client whose operations take `seconds` at most; what goes wrong in the block is a TopicError."""
    client = None
    try:
        client = _client(settings, seconds)
        yield client
    except pulsar.PulsarException as error:
        raise TopicError(f"{settings.service_url}: {_reason(error)}") from None
    finally:
        if client is not None:
            # Closing would wait for the broker.
            client.shutdown()


def _client(settings: PulsarSettings, seconds: int) -> pulsar.Client:
    login = settings.login
    try:
        return pulsar.Client(
            settings.service_url,
            authentication=Credentials(login).authentication(),
            operation_timeout_seconds=seconds,
            connection_timeout_ms=seconds * 1000,
            tls_trust_certs_file_path=login.tls_trust or None,
            tls_validate_hostname=login.tls_check_hostname,
            tls_certificate_file_path=login.tls_certificate or None,
            tls_private_key_file_path=login.tls_key or None,
            # What matters of the library's lines is raised, too.
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
        )
    except ValueError as error:
        raise TopicError(f"--source: got {settings.service_url}, expected pulsar://HOST:PORT: {error}") from None


def _reason(error: pulsar.PulsarException) -> str:
    name = type(error).__name__
    if isinstance(error, pulsar.AuthenticationError | pulsar.AuthorizationError):
        return f"refused ({name}): log in as a role that may consume (--auth-file)"
    if isinstance(error, pulsar.Timeout | pulsar.ConnectError | pulsar.NotConnected):
        return f"the broker does not answer ({name}; --source, --tls-trust)"
    return f"{name}: {' '.join(str(error).split())}"


def message_id(after: Position) -> pulsar.MessageId:
    """Return the id from which a reader gets the entry after this position first, whole."""
    # To be read inclusively. Batch index -1 is before the first message of a batch, but is a message that is in none:
    # a reader that does not include its start would leave that one out.
    return pulsar.MessageId(-1, after.ledger, after.entry + 1, -1)


def read_range(
    settings: PulsarSettings, part: Range, clock: Callable[[], float] = time.monotonic
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of `part` in their order; raises DataLossError, TopicError."""
    values: list[bytes] = []
    places: list[Position] = []
    size = 0
    seen: set[int] = set()
    with connected(settings, SILENCE_SECONDS) as client:
        reader = client.create_reader(
            part.name,
            message_id(part.start),
            receiver_queue_size=QUEUE,
            reader_name="pulsar-proxy-pipeline",
            start_message_id_inclusive=True,
        )
        for message, place in _messages(reader, part, clock):
            seen.add(place.ledger)
            value = message.data()
            # A null value is a tombstone for compaction, not an event.
            if not value and message.has_null_value():
                continue
            values.append(value)
            places.append(place)
            size += len(value)
            if len(values) >= BATCH_ROWS or size >= BATCH_BYTES:
                yield _batch(part.name, values, places)
                values, places, size = [], [], 0
    _check_all_seen(settings, part, seen)
    if values:
        yield _batch(part.name, values, places)


def _batch(name: str, values: list[bytes], places: list[Position]) -> pa.RecordBatch:
    ledgers, entries = zip(*places, strict=True)
    columns = [pa.array(values, pa.binary()), pa.repeat(name, len(values)), pa.array(ledgers), pa.array(entries)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _messages(reader: pulsar.Reader, part: Range, clock: Callable[[], float]) -> Iterator[tuple[Any, Position]]:
    """Yield the messages after `part.start` up to `part.end`, each with its entry."""
    at = part.start
    heard = clock()
    while True:
        try:
            message = reader.read_next(_STEP_MILLIS)
        except pulsar.Timeout:
            # Entries that are none of a producer's, such as marks of transactions, never come.
            if not reader.has_message_available():
                return
            if clock() - heard >= SILENCE_SECONDS:
                raise TopicError(
                    f"{part.name}: the broker brought nothing for {SILENCE_SECONDS} s after {at},"
                    f" expected messages up to {part.end}"
                ) from None
            continue
        heard = clock()
        place = message.message_id()
        at = Position(place.ledger_id(), place.entry_id())
        if at > part.end:
            return
        yield message, at
        if at == part.end and not reader.has_message_available():
            return


def _check_all_seen(settings: PulsarSettings, part: Range, seen: set[int]) -> None:
    """Raise DataLossError if a ledger of the range brought nothing because it was trimmed meanwhile."""
    missing = set(part.ledgers) - seen
    if not missing or settings.on_data_loss == "warn":
        return
    state = Cluster(settings).states().get(part.name)
    there = {ledger.id for ledger in state.ledgers} if state else set()
    if gone := sorted(missing - there):
        raise DataLossError(
            f"{part.name}: ledgers {gone} were trimmed while they were to be read: keep messages longer (retention),"
            " or go on without them with --on-data-loss warn"
        )
