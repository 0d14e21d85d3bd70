"""Proxies with a token of their own behind one address: who looks up at one and connects at another is served.

The proxy that gets the connection has just started, so it has seen no lookup. It knows the broker by an address of
`brokerServiceURL`, or by the brokers' own list.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.java_consumers import Client, run_java_consumers
from tests.pulsar.messages import connect, receive, send_numbers, send_to_all
from tests.pulsar.proxy_process import host_and_port
from tests.pulsar.standalone import Broker
from tests.pulsar.ways import fleet, on_a_loop
from tests.support.faults.proxy import FaultProxy

pytestmark = pytest.mark.pulsar

UNKNOWN = "is not a known broker"
# A host of the configuration at which the broker does not say that it is.
OTHER_HOST = "127.0.0.2"
START_SECONDS = 60.0


@pytest.fixture
def by_list(broker: Broker) -> Iterator[Mapping[str, str]]:
    """Give the keys of proxies whose only broker is another address, and whose role may read the list."""
    _, port = host_and_port(broker.service_url)
    with on_a_loop(lambda: FaultProxy(port, OTHER_HOST, port)):
        yield {
            "brokerServiceURL": f"pulsar://{OTHER_HOST}:{port}",
            "brokerClientAuthenticationPlugin": "token",
            "brokerClientAuthenticationParameters": "token:of a proxy",
        }


def test_java_clients_are_served_where_the_broker_is_known_by_the_list(
    broker: Broker, by_list: Mapping[str, str], admin: Admin, namespace: str, tmp_path: Path
) -> None:
    topics = [f"persistent://{namespace}/a{number}" for number in range(3)]
    for topic in topics:
        admin.create_topic(topic)
    with fleet(tmp_path, broker, by_list) as proxies:
        pattern = f"persistent://{namespace}/a.*"
        with run_java_consumers(tmp_path, Client.NEW, proxies.url, pattern, 1) as consumers:
            consumers.wait_for_topics(set(topics), START_SECONDS)
            send_to_all(proxies.url, topics)
            consumers.process.wait_ready(lambda: sorted(consumers.received()) == topics, START_SECONDS)
        assert UNKNOWN not in proxies.logs()
        assert "brokers listed" in proxies.logs()


def test_clients_of_proxies_that_know_nothing_look_up_again_until_they_are_served(
    broker: Broker, by_list: Mapping[str, str], topic: str, tmp_path: Path
) -> None:
    with fleet(tmp_path, broker, {**by_list, "brokerWebServiceURL": ""}) as proxies:
        client = connect(proxies.url)
        consumer = client.subscribe(topic, "sub")
        sent = send_numbers(client.create_producer(topic), 20)
        assert [message.data() for message in receive(consumer, len(sent))] == sent
        client.close()
        assert UNKNOWN in proxies.logs()
