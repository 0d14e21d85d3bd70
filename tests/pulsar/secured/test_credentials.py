"""Real clients with each kind of credentials through the proxy to a broker that authenticates and authorizes.

What they may not do they are told; what expires is renewed, and what was withdrawn lets nobody in.
"""

import itertools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.messages import receive
from tests.pulsar.proxy_process import connected, run_proxy
from tests.pulsar.secured.clients import KINDS, authentication, client, exchange, refused, url_for
from tests.pulsar.secured.credentials import ROLES, Credentials, password
from tests.pulsar.secured.servers import SecuredBroker, SecuredProxy
from tests.pulsar.traffic import traffic
from tests.support.clients.wire import ServerRefusedError
from tests.support.patience import patient

pytestmark = pytest.mark.pulsar

NewProxy = Callable[..., SecuredProxy]
# Long enough to connect with one.
TOKEN_SECONDS = round(patient(4))
RENEWAL_SECONDS = 120.0
RENEWALS = 2
TO_BROKER = {"plain to the broker": {}, "tls to the broker": {"tlsEnabledWithBroker": "true"}}


def exchange_and_subscribe(alice: pulsar.Client, admin: Admin, namespace: str) -> list[str]:
    """Produce and consume, and by a pattern, too; give the topics that there are now."""
    topics = [f"persistent://{namespace}/{name}" for name in ("a-1", "a-2", "b-1")]
    for topic in topics:
        admin.create_topic(topic)
    exchange(alice, topics[2])
    consumer = alice.subscribe(re.compile(f"persistent://{namespace}/a-.*"), "pattern")
    for topic in topics:
        alice.create_producer(topic).send(topic.encode())
    assert sorted(message.data().decode() for message in receive(consumer, 2)) == topics[:2]
    return topics


@pytest.mark.parametrize("to_broker", TO_BROKER)
@pytest.mark.parametrize("kind", KINDS)
def test_a_client_produces_and_consumes_also_by_a_pattern(
    secured_proxy: NewProxy, credentials: Credentials, admin: Admin, namespace: str, kind: str, to_broker: str
) -> None:
    proxy = secured_proxy(**TO_BROKER[to_broker])
    with client(url_for(proxy, kind), credentials, authentication(credentials, kind, "alice")) as alice:
        exchange_and_subscribe(alice, admin, namespace)


def test_a_proxy_that_was_told_only_of_tokens_serves_clients_lists_and_patterns(
    broker: SecuredBroker, credentials: Credentials, admin: Admin, namespace: str, tmp_path: Path
) -> None:
    keys = {
        "authenticationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenPublicKey": f"file://{credentials.public_key_file}",
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{credentials.token('proxy')}",
    }
    with run_proxy(tmp_path, broker, keys) as proxy:
        with client(proxy.service_url, credentials, authentication(credentials, "token", "alice")) as alice:
            topics = exchange_and_subscribe(alice, admin, namespace)
        token = credentials.token("alice").encode()
        with connected(proxy.service_url, auth_method_name="token", auth_data=token) as wire:
            assert sorted(wire.get_topics(namespace).topics) == admin.topics(namespace) == topics


@pytest.mark.parametrize("kind", KINDS)
def test_a_role_that_may_not_is_told_so_by_the_broker(
    secured_proxy: NewProxy, credentials: Credentials, namespace: str, kind: str
) -> None:
    with client(url_for(secured_proxy(), kind), credentials, authentication(credentials, kind, "bob")) as bob:
        assert "AuthorizationError" in refused(lambda: bob.subscribe(f"persistent://{namespace}/topic", "sub"))


def test_a_client_without_credentials_is_the_anonymous_role_where_there_is_one(
    secured_proxy: NewProxy, credentials: Credentials, admin: Admin, namespace: str
) -> None:
    admin.call("POST", f"/admin/v2/namespaces/{namespace}/permissions/nobody", ["produce", "consume"])
    proxy = secured_proxy(anonymousUserRole="nobody")
    with client(proxy.url, credentials) as someone:
        exchange(someone, f"persistent://{namespace}/topic")


@pytest.fixture
def withdrawn(credentials: Credentials) -> Iterator[dict[str, Callable[[], None]]]:
    """Give what withdraws alice's credentials of a kind: they are in force again after the test."""
    yield {
        "basic": lambda: credentials.write_passwords(("bob", "proxy", "admin")),
        "token": lambda: credentials.write_public_key(foreign=True),
    }
    credentials.write_passwords(ROLES)
    credentials.write_public_key()


@pytest.mark.parametrize("kind", ["basic", "token"])
def test_credentials_that_are_withdrawn_let_nobody_in(
    secured_proxy: NewProxy,
    credentials: Credentials,
    namespace: str,
    withdrawn: dict[str, Callable[[], None]],
    kind: str,
) -> None:
    proxy = secured_proxy()
    data = f"alice:{password('alice')}" if kind == "basic" else credentials.token("alice")

    def is_refused() -> bool:
        try:
            with connected(proxy.url, auth_method_name=kind, auth_data=data.encode()):
                return False
        except ServerRefusedError:
            return True

    with client(proxy.url, credentials, authentication(credentials, kind, "alice")) as alice:
        exchange(alice, f"persistent://{namespace}/topic")
    withdrawn[kind]()
    # Until the proxy has read the file that was changed.
    proxy.process.wait_ready(is_refused, 60.0)


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
