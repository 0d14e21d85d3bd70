"""Who may not come in, or not do what it wants: the client learns it, at once and by the right error."""

from collections.abc import Callable, Iterator

import pulsar
import pytest

from protocol.errors import ServerError
from tests.pulsar.admin import Admin
from tests.pulsar.proxy_process import host_and_port
from tests.pulsar.secured.clients import KINDS, authentication, client, exchange, refused, url_for
from tests.pulsar.secured.credentials import ROLES, Credentials
from tests.pulsar.secured.servers import SecuredBroker, SecuredProxy
from tests.support.wire import ServerRefusedError, WireClient

pytestmark = pytest.mark.pulsar

NewProxy = Callable[..., SecuredProxy]


@pytest.fixture
def proxy(secured_proxy: NewProxy) -> SecuredProxy:
    return secured_proxy()


def subscribing(url: str, credentials: Credentials, auth: pulsar.Authentication | None, topic: str) -> str:
    """Give the refusal of a client that wants to consume."""
    with client(url, credentials, auth) as someone:
        return refused(lambda: someone.subscribe(topic, "sub"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_role_that_may_not_is_told_so_by_the_broker(
    proxy: SecuredProxy, credentials: Credentials, namespace: str, kind: str
) -> None:
    topic = f"persistent://{namespace}/topic"
    auth = authentication(credentials, kind, "bob")
    assert "AuthorizationError" in subscribing(url_for(proxy, kind), credentials, auth, topic)


@pytest.mark.parametrize("direct", [False, True], ids=["lookup", "relay"])
def test_an_expired_or_foreign_token_is_refused_at_the_door(
    proxy: SecuredProxy, broker: SecuredBroker, credentials: Credentials, direct: bool
) -> None:
    target = {"proxy_to_broker_url": broker.service_url.removeprefix("pulsar://")} if direct else {}
    bad = [credentials.token("alice", -1), credentials.token("alice", foreign=True), "no token", ""]
    for token in bad:
        with WireClient(*host_and_port(proxy.url)) as wire:
            with pytest.raises(ServerRefusedError) as refusal:
                wire.connect(auth_method_name="token", auth_data=token.encode(), **target)
            assert refusal.value.code == ServerError.AuthenticationError
            assert not token or token not in refusal.value.message
            wire.wait_closed()


def test_a_client_with_an_expired_token_is_told_so(
    proxy: SecuredProxy, credentials: Credentials, namespace: str
) -> None:
    auth = pulsar.AuthenticationToken(credentials.token("alice", -1))
    assert "AuthenticationError" in subscribing(proxy.url, credentials, auth, f"persistent://{namespace}/topic")


def test_a_client_without_credentials_is_refused(proxy: SecuredProxy, credentials: Credentials, namespace: str) -> None:
    topic = f"persistent://{namespace}/topic"
    for url in (proxy.url, proxy.tls_url):
        assert "AuthenticationError" in subscribing(url, credentials, None, topic)


def test_a_client_without_credentials_is_the_anonymous_role_where_there_is_one(
    secured_proxy: NewProxy, credentials: Credentials, admin: Admin, namespace: str
) -> None:
    admin.call("POST", f"/admin/v2/namespaces/{namespace}/permissions/nobody", ["produce", "consume"])
    proxy = secured_proxy(anonymousUserRole="nobody")
    with client(proxy.url, credentials) as someone:
        exchange(someone, f"persistent://{namespace}/topic")


def test_a_wrong_password_and_a_removed_one_are_refused(
    proxy: SecuredProxy, credentials: Credentials, namespace: str, passwords_of: Callable[..., None]
) -> None:
    topic = f"persistent://{namespace}/topic"
    wrong = pulsar.AuthenticationBasic("alice", "bob's password")
    assert "AuthenticationError" in subscribing(proxy.url, credentials, wrong, topic)
    passwords_of("bob", "proxy", "admin")
    proxy_that_reads_it_anew(proxy, credentials, "basic", topic)


@pytest.fixture
def passwords_of(credentials: Credentials) -> Iterator[Callable[..., None]]:
    """Give a function that leaves only the passwords of some roles in the file."""
    yield lambda *roles: credentials.write_passwords(roles)
    credentials.write_passwords(ROLES)


@pytest.fixture
def revoked_key(credentials: Credentials) -> Iterator[Callable[[], None]]:
    """Give a function after which no token is trusted that was ever given out."""
    yield lambda: credentials.write_public_key(foreign=True)
    credentials.write_public_key()


def test_a_token_whose_key_was_withdrawn_is_refused(
    proxy: SecuredProxy, credentials: Credentials, namespace: str, revoked_key: Callable[[], None]
) -> None:
    topic = f"persistent://{namespace}/topic"
    with client(proxy.url, credentials, authentication(credentials, "token", "alice")) as alice:
        exchange(alice, topic)
    revoked_key()
    proxy_that_reads_it_anew(proxy, credentials, "token", topic)


def proxy_that_reads_it_anew(proxy: SecuredProxy, credentials: Credentials, kind: str, topic: str) -> None:
    """Wait until the proxy has read the file that was changed: then alice is not let in."""

    def is_refused() -> bool:
        try:
            with WireClient(*host_and_port(proxy.url)) as wire:
                wire.connect(auth_method_name=kind, auth_data=connect_data(credentials, kind))
        except ServerRefusedError as refusal:
            assert refusal.code == ServerError.AuthenticationError
            return True
        return False

    assert proxy.process is not None
    proxy.process.wait_ready(is_refused, 30.0)
    auth = authentication(credentials, kind, "alice")
    assert "AuthenticationError" in subscribing(proxy.url, credentials, auth, topic)


def connect_data(credentials: Credentials, kind: str) -> bytes:
    """Give what a client of this kind puts into CONNECT for alice."""
    return credentials.token("alice").encode() if kind == "token" else b"alice:alice's password"
