"""Three proxies with a token of their own behind one address: who looks up at one and connects at another is served.

The proxy that gets the connection has just started, so it has seen no lookup. It knows the broker by an address of
`brokerServiceURL`, or by the brokers' own list. Brokers that authorize take relays from roles in their `proxyRoles`
only, and do not show the list to such a role: the list is that of a broker that authenticates and does not authorize.
"""

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.behind_one_address import Forwarder, OneAddress, one_address
from tests.pulsar.harness import run_other_broker
from tests.pulsar.java_consumers import Client, run_java_consumers
from tests.pulsar.messages import send_to_all
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.proxy_process import host_and_port
from tests.pulsar.secured.clients import authentication, client, exchange
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import SecuredBroker, broker_kind, proxy_keys
from tests.pulsar.standalone import Broker, MissingToolError
from tests.support.sockets.ports import free_ports

pytestmark = pytest.mark.pulsar

ROUNDS = 3
UNKNOWN = "is not a known broker"
# A host of the configuration at which the broker does not say that it is.
OTHER_HOST = "127.0.0.2"
START_SECONDS = 60.0


def known_by_address(credentials: Credentials, broker: SecuredBroker) -> dict[str, str]:
    """Return the keys of proxies that know the broker by a name that leads to its address."""
    keys = {
        **proxy_keys(credentials, broker),
        "brokerServiceURL": broker.service_url.replace("127.0.0.1", "localhost"),
        "brokerWebServiceURL": "",
    }
    # Of ports with TLS there are none here.
    return {key: value for key, value in keys.items() if not key.startswith("tls")}


@pytest.fixture(scope="module")
def open_broker(credentials: Credentials, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Give a broker that asks for credentials, and lets every role do everything."""
    kind = broker_kind(credentials, *free_ports(2))
    kind = replace(kind, keys={**kind.keys, "authorizationEnabled": "false", "proxyRoles": ""})
    try:
        with run_other_broker(tmp_path_factory.mktemp("open-broker"), kind) as running:
            yield running
    except (MissingToolError, ProcessFailedError) as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def open_admin(open_broker: Broker, credentials: Credentials) -> Admin:
    return Admin(open_broker.admin_url, credentials.token("admin"))


@pytest.fixture
def open_namespace(open_admin: Admin) -> str:
    """Create a namespace on the broker that authorizes nobody."""
    name = f"public/open-{uuid.uuid4().hex[:12]}"
    open_admin.create_namespace(name)
    return name


def known_by_list(credentials: Credentials, broker: Broker, port: int) -> dict[str, str]:
    """Return the keys of proxies whose only broker is another address, and whose role may read the list."""
    return {
        "brokerServiceURL": f"pulsar://{OTHER_HOST}:{port}",
        "brokerWebServiceURL": broker.admin_url,
        "brokerClientAuthenticationPlugin": "token",
        "brokerClientAuthenticationParameters": f"token:{credentials.token('proxy')}",
    }


@pytest.fixture
def other_way(open_broker: Broker) -> Iterator[int]:
    """Give the broker's port, at which it can be reached by `OTHER_HOST` as well."""
    _, port = host_and_port(open_broker.service_url)
    with Forwarder(itertools.repeat(port), OTHER_HOST, port):
        yield port


def produce_and_consume(behind: OneAddress, credentials: Credentials, namespace: str, role: str | None) -> None:
    """Have a new client of `role` exchange messages in each round, while the next proxies restart."""
    for number in range(ROUNDS):
        behind.restart(1)
        auth = None if role is None else authentication(credentials, "token", role)
        with client(behind.service_url, credentials, auth) as using:
            exchange(using, f"persistent://{namespace}/topic-{number}")
        assert behind.restarted == number + 1
        assert UNKNOWN not in behind.logs()


def test_python_clients_are_served_where_the_broker_is_known_by_its_address(
    broker: SecuredBroker, credentials: Credentials, namespace: str, tmp_path: Path
) -> None:
    with one_address(tmp_path, broker, known_by_address(credentials, broker)) as behind:
        produce_and_consume(behind, credentials, namespace, "alice")


def test_python_clients_are_served_where_the_broker_is_known_by_the_list(
    open_broker: Broker, credentials: Credentials, open_namespace: str, other_way: int, tmp_path: Path
) -> None:
    with one_address(tmp_path, open_broker, known_by_list(credentials, open_broker, other_way)) as behind:
        produce_and_consume(behind, credentials, open_namespace, None)
        assert "brokers listed" in behind.logs()


@pytest.mark.parametrize("java", list(Client))
def test_java_clients_are_served_where_the_broker_is_known_by_the_list(
    open_broker: Broker,
    credentials: Credentials,
    open_admin: Admin,
    open_namespace: str,
    other_way: int,
    tmp_path: Path,
    java: Client,
) -> None:
    topics = [f"persistent://{open_namespace}/a{number}" for number in range(3)]
    for topic in topics:
        open_admin.create_topic(topic)
    with one_address(tmp_path, open_broker, known_by_list(credentials, open_broker, other_way)) as behind:
        behind.restart(2)
        pattern = f"persistent://{open_namespace}/a.*"
        with run_java_consumers(tmp_path, java, behind.service_url, pattern, 1) as consumers:
            consumers.wait_for_topics(set(topics), START_SECONDS)
            send_to_all(behind.service_url, topics)
            consumers.process.wait_ready(lambda: sorted(consumers.received()) == topics, START_SECONDS)
        assert behind.restarted == 2
        assert UNKNOWN not in behind.logs()


def test_clients_of_proxies_that_know_nothing_look_up_again_until_they_are_served(
    open_broker: Broker, credentials: Credentials, open_namespace: str, other_way: int, tmp_path: Path
) -> None:
    keys = {**known_by_list(credentials, open_broker, other_way), "brokerWebServiceURL": ""}
    with one_address(tmp_path, open_broker, keys, count=2) as behind:
        with client(behind.service_url, credentials) as using:
            exchange(using, f"persistent://{open_namespace}/topic")
        assert UNKNOWN in behind.logs()


def test_a_role_of_a_proxy_may_not_read_the_list_and_is_told_so_once(
    broker: SecuredBroker, credentials: Credentials, namespace: str, tmp_path: Path
) -> None:
    keys = {**known_by_address(credentials, broker), "brokerWebServiceURL": broker.admin_url}
    with one_address(tmp_path, broker, keys, count=1) as behind:
        with client(behind.service_url, credentials, authentication(credentials, "token", "alice")) as alice:
            exchange(alice, f"persistent://{namespace}/topic")
        assert behind.logs().count("the list of brokers may not be read") == 1
