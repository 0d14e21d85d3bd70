"""The Pulsar client as this source uses it: logged in, quiet, closed in the end, its errors as ours.

Rule: every wait ends. The library bounds its operations by `operation_timeout_seconds`; closing, which waits for the
broker, goes on in a thread of its own if it takes longer than `_CLOSE_SECONDS`, and ends with the process.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pulsar

from pipeline.sources.pulsar.credentials import authentication
from pipeline.sources.pulsar.errors import TopicError
from pipeline.sources.pulsar.offsets import Position
from pipeline.sources.pulsar.options import PulsarSettings

_CONNECT_MILLIS: Final = 10_000
_CLOSE_SECONDS: Final = 5.0


@contextmanager
def connected(settings: PulsarSettings) -> Iterator[pulsar.Client]:
    """Yield a client until the block ends; what goes wrong in the block is a TopicError."""
    client = None
    try:
        client = pulsar.Client(
            settings.service_url,
            authentication=authentication(settings),
            operation_timeout_seconds=settings.read_timeout_seconds,
            connection_timeout_ms=_CONNECT_MILLIS,
            tls_trust_certs_file_path=settings.tls_trust or None,
            tls_validate_hostname=settings.tls_check_hostname,
            tls_certificate_file_path=settings.tls_certificate or None,
            tls_private_key_file_path=settings.tls_key or None,
            # The library's lines at lower levels would fill the logs of the executors.
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        yield client
    except pulsar.PulsarException as error:
        raise TopicError(f"{settings.service_url} {settings.topic}: {_reason(error)}") from None
    finally:
        if client is not None:
            _close(client)


def _reason(error: pulsar.PulsarException) -> str:
    name = type(error).__name__
    if isinstance(error, pulsar.AuthenticationError | pulsar.AuthorizationError):
        return f"refused ({name}): log in with --auth as a role that may consume"
    if isinstance(error, pulsar.Timeout | pulsar.ConnectError | pulsar.NotConnected):
        return f"the broker does not answer ({name}; --read-timeout)"
    return f"{name}: {' '.join(str(error).split())}"


def _close(client: pulsar.Client) -> None:
    def close() -> None:
        # Nothing was written: there is nothing to lose.
        with suppress(pulsar.PulsarException):
            client.close()

    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    closing.join(_CLOSE_SECONDS)


def reading(client: pulsar.Client, name: str, start: pulsar.MessageId, settings: PulsarSettings) -> pulsar.Reader:
    """Return a reader of one partition from `start` on, that included; it is closed with its client."""
    return client.create_reader(
        name,
        start,
        receiver_queue_size=settings.receiver_queue,
        reader_name="pulsar-proxy-pipeline",
        start_message_id_inclusive=True,
    )


def message_id(after: Position) -> pulsar.MessageId:
    """Return the id from which a reader gets the entry after this position first, whole."""
    if after.ledger < 0:
        return pulsar.MessageId.earliest
    # To be read inclusively. Batch index -1 is before the first message of a batch, but is a message that is in none:
    # a reader that does not include its start would leave that one out.
    return pulsar.MessageId(-1, after.ledger, after.entry + 1, -1)
