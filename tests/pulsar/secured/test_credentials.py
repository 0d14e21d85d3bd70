"""Real clients with each kind of credentials through the proxy to a broker that authenticates and authorizes."""

import re
from collections.abc import Callable

import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.messages import receive
from tests.pulsar.secured.clients import KINDS, authentication, client, exchange, url_for
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import SecuredProxy

pytestmark = pytest.mark.pulsar

NewProxy = Callable[..., SecuredProxy]
TO_BROKER = {"plain to the broker": {}, "tls to the broker": {"tlsEnabledWithBroker": "true"}}


@pytest.fixture(params=TO_BROKER)
def proxy(request: pytest.FixtureRequest, secured_proxy: NewProxy) -> SecuredProxy:
    return secured_proxy(**TO_BROKER[request.param])


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_produces_and_consumes(
    proxy: SecuredProxy, credentials: Credentials, namespace: str, kind: str
) -> None:
    with client(url_for(proxy, kind), credentials, authentication(credentials, kind, "alice")) as alice:
        exchange(alice, f"persistent://{namespace}/topic")


@pytest.mark.parametrize("kind", KINDS)
def test_a_pattern_subscription_gets_its_topics(
    proxy: SecuredProxy, credentials: Credentials, admin: Admin, namespace: str, kind: str
) -> None:
    topics = [f"persistent://{namespace}/orders-{number}" for number in range(3)]
    for topic in topics:
        admin.create_topic(topic)
    with client(url_for(proxy, kind), credentials, authentication(credentials, kind, "alice")) as alice:
        consumer = alice.subscribe(re.compile(f"persistent://{namespace}/orders-.*"), "sub")
        for topic in topics:
            alice.create_producer(topic).send(topic.encode())
        assert sorted(message.data().decode() for message in receive(consumer, 3)) == topics
