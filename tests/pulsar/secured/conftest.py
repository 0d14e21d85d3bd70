"""A broker that asks who is there: tokens, certificates and passwords, authorization, TLS, and a role for proxies.

`alice` may produce and consume in `namespace`, `bob` may not; `proxy` is a proxy, `admin` may do everything.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.harness import run_other_broker
from tests.pulsar.own_broker import in_one_line
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import SecuredBroker, SecuredProxy, run_secured_proxy, secured_kind
from tests.pulsar.standalone import DEFAULT, Kind
from tests.support.sockets.ports import free_ports


@pytest.fixture(scope="session")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return Credentials(tmp_path_factory.mktemp("credentials"))


def secured_fixtures(release: Kind) -> tuple[Any, Any]:
    """Make the fixtures `broker` and `secured_proxy` of a package of tests before a broker of a release."""

    @pytest.fixture(scope="session")
    def broker(credentials: Credentials, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
        ports = free_ports(2)
        kind = secured_kind(release, credentials, *ports)
        with in_one_line(), run_other_broker(tmp_path_factory.mktemp("secured-broker"), kind) as running:
            yield SecuredBroker(running.service_url, running.admin_url, running.origin, *ports)

    @pytest.fixture
    def secured_proxy(
        broker: SecuredBroker, credentials: Credentials, tmp_path: Path
    ) -> Iterator[Callable[..., SecuredProxy]]:
        """Give a maker of proxies before the secured broker, each with keys of its own; all must end well."""
        with in_one_line(), ExitStack() as stack:
            yield lambda **keys: stack.enter_context(run_secured_proxy(tmp_path, broker, credentials, keys))

    return broker, secured_proxy


broker, secured_proxy = secured_fixtures(DEFAULT)


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
