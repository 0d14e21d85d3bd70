"""The broker's rules for proxies, seen by a broker: whose word counts, and whose does not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ServerError
from tests.pulsar.proxy_process import connected
from tests.pulsar.secured.clients import authentication, client, exchange
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import SecuredBroker, SecuredProxy, proxy_keys
from tests.pulsar.test_known_brokers import UNKNOWN
from tests.pulsar.ways import fleet
from tests.support.clients.wire import ServerRefusedError

pytestmark = pytest.mark.pulsar

NewProxy = Callable[..., SecuredProxy]


def connecting(url: str, token: str, **fields: Any) -> ServerError | None:
    """Connect with a token; give the code of the refusal, None if there is none."""
    try:
        with connected(url, auth_method_name="token", auth_data=token.encode(), **fields):
            return None
    except ServerRefusedError as refusal:
        return refusal.code


def test_a_broker_wants_to_hear_of_a_proxy_for_whom_it_speaks(broker: SecuredBroker, credentials: Credentials) -> None:
    # The rules themselves: without them the tests below would prove nothing.
    proxy, alice = credentials.token("proxy"), credentials.token("alice")
    assert connecting(broker.service_url, proxy, proxy_version="1") == ServerError.AuthorizationError
    assert connecting(broker.service_url, proxy, original_principal="proxy") == ServerError.AuthorizationError
    assert connecting(broker.service_url, proxy, original_principal="alice") is None
    assert connecting(broker.service_url, alice, original_principal="bob") == ServerError.AuthorizationError


def test_a_client_that_is_a_proxy_itself_is_refused_by_the_broker(
    secured_proxy: NewProxy, broker: SecuredBroker, credentials: Credentials
) -> None:
    target = broker.service_url.removeprefix("pulsar://")
    url = secured_proxy().url
    assert connecting(url, credentials.token("proxy"), proxy_to_broker_url=target) == ServerError.AuthorizationError
    assert connecting(url, credentials.token("alice"), proxy_to_broker_url=target) is None


@pytest.mark.parametrize("direct", [False, True], ids=["lookup", "relay"])
def test_a_clients_own_word_of_who_it_is_counts_for_nothing(
    secured_proxy: NewProxy, broker: SecuredBroker, credentials: Credentials, namespace: str, direct: bool
) -> None:
    topic = f"persistent://{namespace}/topic"
    smuggled: dict[str, Any] = {"original_principal": "admin", "original_auth_method": "token"}
    smuggled["original_auth_data"] = credentials.token("admin")
    target = {"proxy_to_broker_url": broker.service_url.removeprefix("pulsar://")} if direct else {}
    bob = {"auth_method_name": "token", "auth_data": credentials.token("bob").encode()}
    with connected(secured_proxy().url, **bob, **smuggled, **target) as wire:
        answer = wire.answered("PARTITIONED_METADATA", topic=topic, **smuggled).partitionMetadataResponse
    assert answer.error == ServerError.AuthorizationError


def test_clients_are_served_where_the_broker_is_known_by_its_address_and_may_not_be_asked_for_others(
    broker: SecuredBroker, credentials: Credentials, namespace: str, tmp_path: Path
) -> None:
    # Such a broker takes relays from roles in its `proxyRoles` only, and does not show the list of brokers to them.
    keys = {**proxy_keys(credentials, broker), "brokerServiceURL": broker.service_url.replace("127.0.0.1", "localhost")}
    # Of ports with TLS there are none here.
    keys = {key: value for key, value in keys.items() if not key.startswith("tls")}
    with fleet(tmp_path, broker, keys) as proxies:
        with client(proxies.url, credentials, authentication(credentials, "token", "alice")) as alice:
            exchange(alice, f"persistent://{namespace}/topic")
        assert UNKNOWN not in proxies.logs()
        # Each proxy says so once at most.
        assert 1 <= proxies.logs().count("the list of brokers may not be read") <= 2
