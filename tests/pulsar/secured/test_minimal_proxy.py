"""The least that a proxy.conf with tokens must say, before a broker at its defaults."""

import re
from pathlib import Path

import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.messages import receive
from tests.pulsar.proxy_process import host_and_port, run_proxy
from tests.pulsar.secured.clients import authentication, client, exchange
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import SecuredBroker
from tests.support.clients.wire import WireClient

pytestmark = pytest.mark.pulsar


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
    topics = [f"persistent://{namespace}/{name}" for name in ("a-1", "a-2", "b-1")]
    for topic in topics:
        admin.create_topic(topic)
    with run_proxy(tmp_path, broker, keys) as proxy:
        with client(proxy.service_url, credentials, authentication(credentials, "token", "alice")) as alice:
            exchange(alice, topics[2])
            consumer = alice.subscribe(re.compile(f"persistent://{namespace}/a-.*"), "sub")
            for topic in topics:
                alice.create_producer(topic).send(topic.encode())
            assert sorted(message.data().decode() for message in receive(consumer, 2)) == topics[:2]
        with WireClient(*host_and_port(proxy.service_url)) as wire:
            wire.connect(auth_method_name="token", auth_data=credentials.token("alice").encode())
            assert sorted(wire.get_topics(namespace).topics) == admin.topics(namespace) == topics
