"""The broker's rules for proxies, seen by a broker: whose word counts, and whose does not."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.pulsar.harness import run_other_broker
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.proxy_process import host_and_port
from tests.pulsar.secured.clients import authentication, client, exchange
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import SecuredBroker, SecuredProxy, broker_kind, run_secured_proxy
from tests.support.clients.wire import ServerRefusedError, WireClient
from tests.support.sockets.ports import free_ports

pytestmark = pytest.mark.pulsar

NewProxy = Callable[..., SecuredProxy]


def connecting(url: str, token: str, **fields: Any) -> ServerError | None:
    """Connect with a token; give the code of the refusal, None if there is none."""
    with WireClient(*host_and_port(url)) as wire:
        try:
            wire.connect(auth_method_name="token", auth_data=token.encode(), **fields)
        except ServerRefusedError as refusal:
            return refusal.code
    return None


def test_a_broker_wants_to_hear_of_a_proxy_for_whom_it_speaks(broker: SecuredBroker, credentials: Credentials) -> None:
    # The rules themselves: without them the tests below would prove nothing.
    proxy, alice = credentials.token("proxy"), credentials.token("alice")
    assert connecting(broker.service_url, proxy, proxy_version="1") == ServerError.AuthorizationError
    assert connecting(broker.service_url, proxy, original_principal="proxy") == ServerError.AuthorizationError
    assert connecting(broker.service_url, proxy, original_principal="alice") is None
    assert connecting(broker.service_url, alice, original_principal="bob") == ServerError.AuthorizationError


def test_a_client_that_is_a_proxy_itself_is_refused_by_the_broker(
    secured_proxy: NewProxy, broker: SecuredBroker, credentials: Credentials
) -> None:
    target = broker.service_url.removeprefix("pulsar://")
    url = secured_proxy().url
    assert connecting(url, credentials.token("proxy"), proxy_to_broker_url=target) == ServerError.AuthorizationError
    assert connecting(url, credentials.token("alice"), proxy_to_broker_url=target) is None


@pytest.mark.parametrize("direct", [False, True], ids=["lookup", "relay"])
def test_a_clients_own_word_of_who_it_is_counts_for_nothing(
    secured_proxy: NewProxy, broker: SecuredBroker, credentials: Credentials, namespace: str, direct: bool
) -> None:
    topic = f"persistent://{namespace}/topic"
    smuggled: dict[str, Any] = {"original_principal": "admin", "original_auth_method": "token"}
    smuggled["original_auth_data"] = credentials.token("admin")
    target = {"proxy_to_broker_url": broker.service_url.removeprefix("pulsar://")} if direct else {}
    with WireClient(*host_and_port(secured_proxy().url)) as wire:
        wire.connect(auth_method_name="token", auth_data=credentials.token("bob").encode(), **smuggled, **target)
        request = pb.CommandPartitionedTopicMetadata(topic=topic, request_id=1, **smuggled)
        wire.send_command(pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA, partitionMetadata=request))
        answer = wire.answer_to(1).partitionMetadataResponse
    assert answer.error == ServerError.AuthorizationError


@pytest.fixture(scope="module")
def checking_broker(credentials: Credentials, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Give a broker that takes no proxy's word: it wants to see the client's own credentials."""
    tls_port, web_tls_port = free_ports(2)
    kind = broker_kind(credentials, tls_port, web_tls_port, wants_forwarded=True)
    try:
        with run_other_broker(tmp_path_factory.mktemp("checking-broker"), kind) as running:
            yield SecuredBroker(running.service_url, running.admin_url, running.origin, tls_port, web_tls_port)
    except ProcessFailedError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.mark.parametrize("forwarded", [True, False], ids=["forwarded", "not forwarded"])
def test_credentials_that_are_forwarded_satisfy_a_broker_that_wants_to_see_them(
    checking_broker: SecuredBroker, credentials: Credentials, tmp_path_factory: pytest.TempPathFactory, forwarded: bool
) -> None:
    from tests.pulsar.admin import Admin

    admin = Admin(checking_broker.admin_url, credentials.token("admin"))
    namespace = f"public/forwarding-{str(forwarded).lower()}"
    admin.create_namespace(namespace)
    admin.call("POST", f"/admin/v2/namespaces/{namespace}/permissions/alice", ["produce", "consume"])
    keys = {"forwardAuthorizationCredentials": str(forwarded).lower()}
    with run_secured_proxy(tmp_path_factory.mktemp("proxy"), checking_broker, credentials, keys) as proxy:
        if forwarded:
            for kind in ("token", "basic"):
                with client(proxy.url, credentials, authentication(credentials, kind, "alice")) as alice:
                    exchange(alice, f"persistent://{namespace}/{kind}")
        target = checking_broker.service_url.removeprefix("pulsar://")
        refusal = connecting(proxy.url, credentials.token("alice"), proxy_to_broker_url=target)
    assert refusal == (None if forwarded else ServerError.AuthenticationError)
