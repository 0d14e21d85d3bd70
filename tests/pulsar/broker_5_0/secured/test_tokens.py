"""Clients with tokens, and what a role may do with schemas, before a broker 5.0.1 at its defaults."""

import itertools
import time
from collections.abc import Callable
from typing import Final

import pulsar
import pytest

from protocol.errors import ServerError
from tests.pulsar.admin import Admin
from tests.pulsar.broker_5_0.conftest import WELL, Scenarios
from tests.pulsar.proxy_process import connected
from tests.pulsar.secured.clients import authentication, client, exchange
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import SecuredBroker, SecuredProxy

# The same tests, with the fixtures of this package.
from tests.pulsar.secured.test_credentials import (  # noqa: F401
    test_a_proxy_that_was_told_only_of_tokens_serves_clients_lists_and_patterns,
)
from tests.pulsar.secured.test_proxy_roles import (  # noqa: F401
    connecting,
    test_a_client_that_is_a_proxy_itself_is_refused_by_the_broker,
    test_a_clients_own_word_of_who_it_is_counts_for_nothing,
)
from tests.pulsar.secured.test_websockets import (  # noqa: F401
    test_a_websocket_has_the_rights_of_its_client,
    test_the_broker_would_give_who_shows_the_proxys_token_the_proxys_rights,
)
from tests.pulsar.test_schema import json_schema
from tests.pulsar.traffic import traffic
from tests.support.patience import patient

pytestmark = pytest.mark.pulsar

NewProxy = Callable[..., SecuredProxy]
# Long enough to connect with one.
TOKEN_SECONDS: Final = round(patient(4))
RENEWAL_SECONDS: Final = 120.0
RENEWALS: Final = 2


@pytest.mark.timeout(400)
def test_the_v5_client_does_all_of_it_with_a_token(
    run_v5_client: Callable[..., Scenarios], secured_proxy: NewProxy, credentials: Credentials, namespace: str
) -> None:
    # The relays are in the interpreter then.
    proxy = secured_proxy(proxyLogLevel="1")
    assert run_v5_client(proxy.url, namespace, credentials.token("alice")) == WELL


def test_a_client_that_renews_the_tokens_that_the_broker_looks_at_loses_no_message(
    secured_proxy: NewProxy, credentials: Credentials, namespace: str
) -> None:
    given = itertools.count()
    renewed = 0

    def supply() -> str:
        nonlocal renewed
        renewed = next(given)
        return credentials.token("alice", TOKEN_SECONDS)

    proxy = secured_proxy(forwardAuthorizationCredentials="true")
    with (
        client(proxy.url, credentials, pulsar.AuthenticationToken(supply)) as alice,
        traffic(alice, f"persistent://{namespace}/topic") as going,
    ):
        first = renewed
        # The proxy looks once a second, and however many messages pass until a token is over is the machine's affair.
        deadline = time.monotonic() + patient(RENEWAL_SECONDS)
        while renewed < first + RENEWALS and time.monotonic() < deadline:
            going.go_on(5)
        assert renewed >= first + RENEWALS, f"expected {RENEWALS} new tokens, the client was asked for {renewed}"
        going.go_on()


@pytest.mark.parametrize("forwarded", [True, False], ids=["forwarded", "not forwarded"])
def test_credentials_that_are_forwarded_satisfy_a_broker_that_wants_to_see_them(
    secured_proxy: NewProxy, broker: SecuredBroker, credentials: Credentials, namespace: str, forwarded: bool
) -> None:
    proxy = secured_proxy(forwardAuthorizationCredentials=str(forwarded).lower())
    if forwarded:
        for kind in ("token", "basic"):
            with client(proxy.url, credentials, authentication(credentials, kind, "alice")) as alice:
                exchange(alice, f"persistent://{namespace}/{kind}")
    target = broker.service_url.removeprefix("pulsar://")
    refusal = connecting(proxy.url, credentials.token("alice"), proxy_to_broker_url=target)
    assert refusal == (None if forwarded else ServerError.AuthenticationError)


def schema_answers(url: str, token: str, topic: str) -> list[tuple[int | None, str]]:
    """Give code and text of what comes of reading a schema, and of registering one; None is success."""
    with connected(url, auth_method_name="token", auth_data=token.encode()) as wire:
        read, registered = wire.get_schema(topic), wire.get_or_create_schema(topic, json_schema("a"))
    return [
        (answer.error_code if answer.HasField("error_code") else None, answer.error_message)
        for answer in (read, registered)
    ]


# To read a schema a role must be allowed to look its topic up, to register one it must be allowed to produce.
SCHEMA_RIGHTS: Final[dict[str, tuple[list[str], list[ServerError | None]]]] = {
    "producer": (["produce"], [None, None]),
    "consumer": (["consume"], [None, ServerError.AuthorizationError]),
    "nobody": ([], [ServerError.AuthorizationError, ServerError.AuthorizationError]),
}


def test_a_role_reads_and_registers_the_schemas_that_it_may(
    secured_proxy: NewProxy, broker: SecuredBroker, credentials: Credentials, admin: Admin, namespace: str
) -> None:
    topic = f"persistent://{namespace}/topic"
    admin.create_topic(topic)
    url = secured_proxy().url
    assert schema_answers(url, credentials.token("alice"), topic)[1] == (None, "")
    # Each with the connections to the broker that the ones before have left.
    for role, (rights, codes) in SCHEMA_RIGHTS.items():
        if rights:
            admin.call("POST", f"/admin/v2/namespaces/{namespace}/permissions/{role}", rights)
        answers = schema_answers(url, credentials.token(role), topic)
        assert [code for code, _ in answers] == codes, role
        assert answers == schema_answers(broker.service_url, credentials.token(role), topic)
