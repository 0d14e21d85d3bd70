"""Connections that live longer than what they were made with: tokens that expire, certificates that are replaced."""

import itertools
import ssl
import time
from collections.abc import Callable

import pulsar
import pytest
from cryptography.x509 import load_der_x509_certificate

from protocol.pb import PulsarApi_pb2 as pb
from tests.pulsar.proxy_process import connected
from tests.pulsar.secured.clients import authentication, client, over_tls
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import SecuredBroker, SecuredProxy
from tests.pulsar.traffic import traffic
from tests.support.clients.wire import WireClient
from tests.support.patience import patient

pytestmark = pytest.mark.pulsar

NewProxy = Callable[..., SecuredProxy]
# Long enough to connect with one.
TOKEN_SECONDS = round(patient(4))
RENEWAL_SECONDS = 120.0
RENEWALS = 2


def test_a_client_that_renews_its_tokens_loses_no_message(
    secured_proxy: NewProxy, credentials: Credentials, namespace: str
) -> None:
    renew_tokens(secured_proxy, credentials, namespace, forwarded=False)


def renew_tokens(secured_proxy: NewProxy, credentials: Credentials, namespace: str, *, forwarded: bool) -> None:
    given = itertools.count()
    renewed = 0

    def supply() -> str:
        nonlocal renewed
        renewed = next(given)
        return credentials.token("alice", TOKEN_SECONDS)

    proxy = secured_proxy(forwardAuthorizationCredentials=str(forwarded).lower())
    with (
        client(proxy.url, credentials, pulsar.AuthenticationToken(supply)) as alice,
        traffic(alice, f"persistent://{namespace}/topic") as going,
    ):
        first = renewed
        # The proxy looks once a second, and however many messages pass until a token is over is the machine's affair.
        deadline = time.monotonic() + patient(RENEWAL_SECONDS)
        while renewed < first + RENEWALS and time.monotonic() < deadline:
            going.go_on(5)
        assert renewed >= first + RENEWALS, f"expected {RENEWALS} new tokens, the client was asked for {renewed}"
        going.go_on()


def test_a_relayed_client_whose_token_expires_for_good_is_closed(
    secured_proxy: NewProxy, broker: SecuredBroker, credentials: Credentials
) -> None:
    target, token = broker.service_url.removeprefix("pulsar://"), credentials.token("alice", TOKEN_SECONDS)
    with connected(
        secured_proxy().url, auth_method_name="token", auth_data=token.encode(), proxy_to_broker_url=target
    ) as wire:
        wire.wait_closed()


def serial_number(secured: ssl.SSLSocket) -> int:
    """Give the serial number of the certificate that this connection was shown."""
    shown = secured.getpeercert(binary_form=True)
    assert shown is not None
    return load_der_x509_certificate(shown).serial_number


def test_a_certificate_is_replaced_under_traffic_and_no_connection_notices(
    secured_proxy: NewProxy, credentials: Credentials, namespace: str
) -> None:
    proxy = secured_proxy(tlsEnabledWithBroker="true")

    def shows(serial: int) -> bool:
        with over_tls(proxy, credentials) as probe:
            return serial_number(probe) == serial

    with (
        client(proxy.tls_url, credentials, authentication(credentials, "token", "alice")) as alice,
        traffic(alice, f"persistent://{namespace}/topic") as going,
        WireClient.over(over_tls(proxy, credentials)) as old,
    ):
        old.connect(auth_method_name="token", auth_data=credentials.token("alice").encode())
        going.go_on()
        fresh = credentials.write_server_certificate("server")
        proxy.process.wait_ready(lambda: shows(fresh), 60.0)
        going.go_on(200)
        assert old.ping().type == pb.BaseCommand.PONG
        # What reconnects sends again what was on its way.
        assert len(going.received.messages) == len(set(going.received.messages))
