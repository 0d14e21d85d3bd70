"""Geo-replication through the proxy: the replicator of one cluster is a client of the proxy before the other."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pulsar
import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.messages import connect, receive
from tests.pulsar.own_broker import OTHER_CLUSTER
from tests.pulsar.proxy_process import Proxy, run_proxy
from tests.pulsar.standalone import Broker, Standalone
from tests.support.sockets.ports import free_ports

pytestmark = pytest.mark.pulsar

MESSAGES = 50


@contextmanager
def replicated(admin: Admin, namespace: str, proxy: Proxy) -> Iterator[None]:
    """Have `namespace` replicated to the cluster behind the proxy until the block ends."""
    (here,) = admin.call("GET", f"/admin/v2/namespaces/{namespace}/replication")
    admin.call(
        "PUT",
        f"/admin/v2/clusters/{OTHER_CLUSTER}",
        {"serviceUrl": proxy.web_url, "brokerServiceUrl": proxy.service_url},
    )
    admin.call("POST", "/admin/v2/tenants/public", {"adminRoles": [], "allowedClusters": [here, OTHER_CLUSTER]})
    admin.call("POST", f"/admin/v2/namespaces/{namespace}/replication", [here, OTHER_CLUSTER])
    yield
    admin.call("POST", f"/admin/v2/namespaces/{namespace}/replication", [here])


def send(client: pulsar.Client, topic: str, first: int) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(first, first + MESSAGES):
        producer.send(b"%d" % number)
    producer.close()


@pytest.mark.timeout(400)
def test_a_replicator_reaches_the_other_cluster_through_the_proxy_and_comes_again_after_its_restart(
    broker: Broker, own_broker: Standalone, admin: Admin, namespace: str, topic: str, tmp_path: Path
) -> None:
    # Of another cluster, with a metadata store of its own.
    other = own_broker.broker
    Admin(other.admin_url).create_namespace(namespace)
    # The proxy's addresses stay those of the cluster.
    keys = dict(zip(("servicePort", "webServicePort"), map(str, free_ports(2)), strict=True))
    with ExitStack() as second, ExitStack() as first:
        proxy = first.enter_context(run_proxy(tmp_path, other, {**keys, "proxyLogLevel": "1"}))
        at_home, abroad = connect(broker.service_url), connect(other.service_url)
        for client in (at_home, abroad):
            second.callback(client.close)
        consumer = abroad.subscribe(topic, "sub")
        second.enter_context(replicated(admin, namespace, proxy))
        send(at_home, topic, 0)
        assert [message.data() for message in receive(consumer, MESSAGES)] == [b"%d" % n for n in range(MESSAGES)]
        log = proxy.process.log.read_text()
        assert all(f'"command":"{name}"' in log for name in ("PRODUCER", "SEND", "SEND_RECEIPT"))
        first.close()
        second.enter_context(run_proxy(tmp_path, other, keys))
        send(at_home, topic, MESSAGES)
        # What was not acknowledged to the replicator is sent again: twice is allowed, lost is not.
        arrived: dict[bytes, None] = {}
        while len(arrived) < MESSAGES:
            arrived.update({message.data(): None for message in receive(consumer, 1)})
        assert list(arrived) == [b"%d" % n for n in range(MESSAGES, 2 * MESSAGES)]
