"""A broker that asks who is there: tokens, certificates and passwords, authorization, TLS, and a role for proxies.

`alice` may produce and consume in `namespace`, `bob` may not; `proxy` is a proxy, `admin` may do everything.
TEST_PROXY=java puts the Java proxy 4.0.8 in place of ours, for work on these tests.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.harness import run_other_broker
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import SecuredBroker, SecuredProxy, broker_kind, run_secured_proxy
from tests.pulsar.standalone import MissingToolError
from tests.support.sockets.ports import free_ports


@pytest.fixture(scope="session")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return Credentials(tmp_path_factory.mktemp("credentials"))


@pytest.fixture(scope="session")
def broker(credentials: Credentials, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    tls_port, web_tls_port = free_ports(2)
    kind = broker_kind(credentials, tls_port, web_tls_port)
    try:
        with run_other_broker(tmp_path_factory.mktemp("secured-broker"), kind) as running:
            yield SecuredBroker(running.service_url, running.admin_url, running.origin, tls_port, web_tls_port)
    except (MissingToolError, ProcessFailedError) as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def admin(broker: SecuredBroker, credentials: Credentials) -> Admin:
    return Admin(broker.admin_url, credentials.token("admin"))


@pytest.fixture
def namespace(admin: Admin) -> str:
    """Create a namespace that alice may use."""
    name = f"public/secured-{uuid.uuid4().hex[:12]}"
    admin.create_namespace(name)
    admin.call("POST", f"/admin/v2/namespaces/{name}/permissions/alice", ["produce", "consume"])
    return name


@pytest.fixture
def secured_proxy(
    broker: SecuredBroker, credentials: Credentials, tmp_path: Path
) -> Iterator[Callable[..., SecuredProxy]]:
    """Give a maker of proxies before the secured broker, each with keys of its own; all must end well."""
    try:
        with ExitStack() as stack:
            yield lambda **keys: stack.enter_context(run_secured_proxy(tmp_path, broker, credentials, keys))
    except ProcessFailedError as error:
        pytest.fail(str(error), pytrace=False)
