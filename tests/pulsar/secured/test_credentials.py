"""Real clients with each kind of credentials through the proxy to a broker that authenticates and authorizes.

What they may not do they are told.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.messages import receive
from tests.pulsar.proxy_process import connected, run_proxy
from tests.pulsar.secured.clients import KINDS, authentication, client, exchange, refused, url_for
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import SecuredBroker, SecuredProxy

pytestmark = pytest.mark.pulsar

NewProxy = Callable[..., SecuredProxy]
# TLS to the broker once: whose credentials a client shows has nothing to do with it.
KEYS = {"token": {}, "tls": {"tlsEnabledWithBroker": "true"}, "basic": {}}


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


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_produces_and_consumes_also_by_a_pattern(
    secured_proxy: NewProxy, credentials: Credentials, admin: Admin, namespace: str, kind: str
) -> None:
    proxy = secured_proxy(**KEYS[kind])
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


def test_a_role_that_may_not_is_told_so_by_the_broker(
    secured_proxy: NewProxy, credentials: Credentials, namespace: str
) -> None:
    with client(secured_proxy().url, credentials, authentication(credentials, "token", "bob")) as bob:
        assert "AuthorizationError" in refused(lambda: bob.subscribe(f"persistent://{namespace}/topic", "sub"))


def test_a_client_without_credentials_is_the_anonymous_role_where_there_is_one(
    secured_proxy: NewProxy, credentials: Credentials, admin: Admin, namespace: str
) -> None:
    admin.call("POST", f"/admin/v2/namespaces/{namespace}/permissions/nobody", ["produce", "consume"])
    proxy = secured_proxy(anonymousUserRole="nobody")
    with client(proxy.url, credentials) as someone:
        exchange(someone, f"persistent://{namespace}/topic")
