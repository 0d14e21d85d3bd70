"""Who may not come in, or not do what it wants: the client learns it, at once and by the right error."""

import ssl
from collections.abc import Callable, Iterator

import pytest

from protocol.errors import ServerError
from tests.pulsar.admin import Admin
from tests.pulsar.proxy_process import host_and_port
from tests.pulsar.secured.clients import KINDS, authentication, client, exchange, over_tls, refused, url_for
from tests.pulsar.secured.credentials import ROLES, Credentials, password
from tests.pulsar.secured.servers import SecuredBroker, SecuredProxy
from tests.support.clients.wire import ServerRefusedError, WireClient, WireClosedError

pytestmark = pytest.mark.pulsar

NewProxy = Callable[..., SecuredProxy]


@pytest.fixture
def proxy(secured_proxy: NewProxy) -> SecuredProxy:
    return secured_proxy()


@pytest.mark.parametrize("kind", KINDS)
def test_a_role_that_may_not_is_told_so_by_the_broker(
    proxy: SecuredProxy, credentials: Credentials, namespace: str, kind: str
) -> None:
    with client(url_for(proxy, kind), credentials, authentication(credentials, kind, "bob")) as bob:
        assert "AuthorizationError" in refused(lambda: bob.subscribe(f"persistent://{namespace}/topic", "sub"))


def refusal(url: str, kind: str, data: bytes, **fields: str) -> ServerRefusedError | None:
    """Connect with credentials; a refusal must be the connection's end."""
    with WireClient(*host_and_port(url)) as wire:
        try:
            wire.connect(auth_method_name=kind, auth_data=data, **fields)
        except ServerRefusedError as refused:
            wire.wait_closed()
            return refused
    return None


# The real client says no more than that it got no answer in time, also without a proxy: it tries until then.
@pytest.mark.parametrize("direct", [False, True], ids=["lookup", "relay"])
def test_credentials_that_prove_nothing_are_refused_at_the_door(
    proxy: SecuredProxy, broker: SecuredBroker, credentials: Credentials, direct: bool
) -> None:
    target = {"proxy_to_broker_url": broker.service_url.removeprefix("pulsar://")} if direct else {}
    expired, foreign = credentials.token("alice", -1), credentials.token("alice", foreign=True)
    bad = [("token", token) for token in (expired, foreign, "no token", "")]
    bad += [("basic", "alice:bob's password"), ("basic", "carol:password"), ("none", ""), ("unknown", "x"), ("tls", "")]
    for kind, data in bad:
        refused = refusal(proxy.url, kind, data.encode(), **target)
        assert refused is not None, (kind, data)
        assert refused.code == ServerError.AuthenticationError
        assert not data or data not in refused.message
    assert refusal(proxy.url, "token", credentials.token("alice").encode(), **target) is None


def test_a_certificate_of_another_authority_lets_nobody_in(proxy: SecuredProxy, credentials: Credentials) -> None:
    # Who trusts whom shows when the first bytes are read, not when the handshake is over for the client.
    with pytest.raises((ssl.SSLError, WireClosedError)), over_tls(proxy, credentials, "stranger") as secured:
        WireClient.over(secured).connect(auth_method_name="tls")
    with over_tls(proxy, credentials, "alice") as secured:
        WireClient.over(secured).connect(auth_method_name="tls")


def test_a_client_without_credentials_is_the_anonymous_role_where_there_is_one(
    secured_proxy: NewProxy, credentials: Credentials, admin: Admin, namespace: str
) -> None:
    admin.call("POST", f"/admin/v2/namespaces/{namespace}/permissions/nobody", ["produce", "consume"])
    proxy = secured_proxy(anonymousUserRole="nobody")
    with client(proxy.url, credentials) as someone:
        exchange(someone, f"persistent://{namespace}/topic")


@pytest.fixture
def withdrawn(credentials: Credentials) -> Iterator[dict[str, Callable[[], None]]]:
    """Give what withdraws alice's credentials of a kind: they are in force again after the test."""
    yield {
        "basic": lambda: credentials.write_passwords(("bob", "proxy", "admin")),
        "token": lambda: credentials.write_public_key(foreign=True),
    }
    credentials.write_passwords(ROLES)
    credentials.write_public_key()


@pytest.mark.parametrize("kind", ["basic", "token"])
def test_credentials_that_are_withdrawn_let_nobody_in(
    proxy: SecuredProxy, credentials: Credentials, namespace: str, withdrawn: dict[str, Callable[[], None]], kind: str
) -> None:
    data = f"alice:{password('alice')}" if kind == "basic" else credentials.token("alice")
    with client(proxy.url, credentials, authentication(credentials, kind, "alice")) as alice:
        exchange(alice, f"persistent://{namespace}/topic")
    withdrawn[kind]()
    # Until the proxy has read the file that was changed.
    proxy.process.wait_ready(lambda: refusal(proxy.url, kind, data.encode()) is not None, 60.0)
