"""Own real clients with credentials: a client per kind, closed after use, and what they do over and over."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pulsar

from tests.pulsar.messages import receive, send_numbers
from tests.pulsar.secured.credentials import Credentials, password
from tests.pulsar.secured.servers import SecuredProxy
from tests.support.patience import patient, patient_millis

KINDS: Final = ("token", "tls", "basic")
# On a loaded machine a first connection takes seconds.
OPERATION_SECONDS: Final = round(patient(60))


def authentication(credentials: Credentials, kind: str, role: str) -> pulsar.Authentication:
    """Give a role's credentials of that kind."""
    if kind == "token":
        return pulsar.AuthenticationToken(credentials.token(role))
    if kind == "tls":
        return pulsar.AuthenticationTLS(*credentials.certificate(role))
    return pulsar.AuthenticationBasic(role, password(role))


@contextmanager
def client(
    url: str,
    credentials: Credentials,
    auth: pulsar.Authentication | None = None,
    operation_seconds: int = OPERATION_SECONDS,
) -> Iterator[pulsar.Client]:
    """Give a client that trusts the CA of the tests and looks at the host name."""
    made = pulsar.Client(
        url,
        authentication=auth,
        operation_timeout_seconds=operation_seconds,
        connection_timeout_ms=patient_millis(10_000),
        tls_trust_certs_file_path=str(credentials.ca_file) if url.startswith("pulsar+ssl") else None,
        tls_validate_hostname=url.startswith("pulsar+ssl"),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    try:
        yield made
    finally:
        made.close()


def url_for(proxy: SecuredProxy, kind: str) -> str:
    """Give the proxy's address for a kind of credentials: certificates are shown over TLS only."""
    return proxy.tls_url if kind == "tls" else proxy.url


def exchange(using: pulsar.Client, topic: str, count: int = 20) -> None:
    """Produce and consume; every message must arrive, in order."""
    consumer = using.subscribe(topic, "sub")
    sent = send_numbers(using.create_producer(topic, batching_enabled=False), count)
    assert [message.data() for message in receive(consumer, count)] == sent
    consumer.close()


def refused(attempt: Callable[[], object]) -> str:
    """Give the text of the refusal that `attempt` must end with."""
    try:
        attempt()
    except (pulsar.PulsarException, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("expected a refusal, got none")
