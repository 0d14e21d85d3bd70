"""Proxies with a token of their own behind one address, before a broker that authorizes.

Such brokers take relays from roles in their `proxyRoles` only, and do not show the list of brokers to such a role; see
tests/pulsar/test_known_brokers.py.
"""

from pathlib import Path

import pytest

from tests.pulsar.secured.clients import authentication, client, exchange
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import SecuredBroker, proxy_keys
from tests.pulsar.test_known_brokers import UNKNOWN
from tests.pulsar.ways import fleet

pytestmark = pytest.mark.pulsar


def test_clients_are_served_where_the_broker_is_known_by_its_address_and_may_not_be_asked_for_others(
    broker: SecuredBroker, credentials: Credentials, namespace: str, tmp_path: Path
) -> None:
    keys = {**proxy_keys(credentials, broker), "brokerServiceURL": broker.service_url.replace("127.0.0.1", "localhost")}
    # Of ports with TLS there are none here.
    keys = {key: value for key, value in keys.items() if not key.startswith("tls")}
    with fleet(tmp_path, broker, keys, count=2) as proxies:
        with client(proxies.url, credentials, authentication(credentials, "token", "alice")) as alice:
            exchange(alice, f"persistent://{namespace}/topic")
        assert UNKNOWN not in proxies.logs()
        # Each proxy says so once at most.
        assert 1 <= proxies.logs().count("the list of brokers may not be read") <= 2
