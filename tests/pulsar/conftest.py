"""Fixtures: one proxy per session before the one broker, and per test a namespace and clients of its own.

For work on the tests themselves, TEST_DIRECT=1 points `service_url` at the broker, without a proxy; what only
a proxy does is then left out.
"""

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pulsar
import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.messages import connect
from tests.pulsar.own_broker import stoppable
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.proxy_process import Proxy, host_and_port, run_proxy
from tests.pulsar.standalone import Broker, Standalone
from tests.support.clients.wire import WireClient

DIRECT = os.environ.get("TEST_DIRECT") == "1"


@pytest.fixture(scope="session")
def service_url(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the proxy's address; its process must end with 0 when the session is over."""
    if DIRECT:
        yield broker.service_url
        return
    try:
        with run_proxy(tmp_path_factory.mktemp("proxy"), broker) as proxy:
            yield proxy.service_url
    except ProcessFailedError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def proxy_url(service_url: str) -> str:
    """Give the proxy's address to a test of what a broker does not do."""
    if DIRECT:
        pytest.skip("TEST_DIRECT=1: there is no proxy")
    return service_url


@pytest.fixture
def new_proxy(broker: Broker, tmp_path: Path) -> Iterator[Callable[[Mapping[str, str]], Proxy]]:
    """Give a maker of proxies with keys of their own, each a fresh process; all must end with 0 after the test."""
    if DIRECT:
        pytest.skip("TEST_DIRECT=1: there is no proxy")
    try:
        with ExitStack() as stack:
            yield lambda keys: stack.enter_context(run_proxy(tmp_path, broker, keys))
    except ProcessFailedError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def stoppable_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with stoppable(tmp_path_factory.mktemp("stoppable")) as broker:
        yield broker


@pytest.fixture
def own_broker(stoppable_broker: Standalone) -> Standalone:
    """Give a broker that the test may stop; one that failed in between may have left it so."""
    try:
        stoppable_broker.ensure_running()
    except ProcessFailedError:
        stoppable_broker.start()
    return stoppable_broker


@pytest.fixture(scope="session")
def admin(broker: Broker) -> Admin:
    """Give the broker's admin interface."""
    return Admin(broker.admin_url)


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
    clients: list[pulsar.Client] = []

    def make() -> pulsar.Client:
        clients.append(connect(service_url))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def client(new_client: Callable[[], pulsar.Client]) -> pulsar.Client:
    """Give one client."""
    return new_client()


@pytest.fixture
def wire(service_url: str) -> Iterator[WireClient]:
    """Give a wire client after CONNECTED, without a target: the proxy's lookup mode."""
    with WireClient(*host_and_port(service_url)) as connected:
        connected.connect()
        yield connected
