"""Fixtures: one proxy per session before the one broker, and per test a namespace and clients of its own."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pulsar
import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.harness import check
from tests.pulsar.messages import connect
from tests.pulsar.own_broker import OTHER_CLUSTER, fixtures_before, in_one_line
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.proxy_process import Proxy, connected, run_proxy
from tests.pulsar.standalone import DEFAULT, Broker, Kind, Standalone
from tests.support.clients.wire import WireClient

# The broker is that of the whole session.
_, service_url, admin = fixtures_before(DEFAULT, "session")


@pytest.fixture
def new_proxy(broker: Broker, tmp_path: Path) -> Iterator[Callable[[Mapping[str, str]], Proxy]]:
    """Give a maker of proxies with keys of their own, each a fresh process; all must end with 0 after the test."""
    with in_one_line(), ExitStack() as stack:
        yield lambda keys: stack.enter_context(run_proxy(tmp_path, broker, keys))


@pytest.fixture(scope="session")
def stoppable_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    # As Pulsar does by default, what is acknowledged is on the disk.
    kind = Kind(keys={"journalSyncData": "true", "clusterName": OTHER_CLUSTER})
    with in_one_line():
        broker = Standalone(tmp_path_factory.mktemp("stoppable"), by_docker=check({}) == "docker", kind=kind)
        try:
            broker.start()
            yield broker
        finally:
            broker.stop()


@pytest.fixture
def own_broker(stoppable_broker: Standalone) -> Standalone:
    """Give a broker that the test may stop; one that failed in between may have left it so."""
    try:
        stoppable_broker.ensure_running()
    except ProcessFailedError:
        stoppable_broker.start()
    return stoppable_broker


@pytest.fixture
def namespace(admin: Admin) -> str:
    """Give an empty namespace that only this test uses."""
    name = f"public/test-{uuid.uuid4().hex[:12]}"
    admin.create_namespace(name)
    return name


@pytest.fixture
def topic(namespace: str) -> str:
    """Give the name of a topic that does not exist yet."""
    return f"persistent://{namespace}/topic"


@pytest.fixture
def new_client(service_url: str) -> Iterator[Callable[[], pulsar.Client]]:
    """Give a maker of clients; all are closed after the test."""
    with ExitStack() as stack:

        def make() -> pulsar.Client:
            client = connect(service_url)
            stack.callback(client.close)
            return client

        yield make


@pytest.fixture
def client(new_client: Callable[[], pulsar.Client]) -> pulsar.Client:
    """Give one client."""
    return new_client()


@pytest.fixture
def wire(service_url: str) -> Iterator[WireClient]:
    """Give a wire client after CONNECTED, without a target: the proxy's lookup mode."""
    with connected(service_url) as client:
        yield client
