"""A request that makes the broker close its connection costs the client that sent it, and nobody else.

A broker 4.2 closes the connection on the requests below instead of answering them. A proxy that shares its
connections to a broker among clients would lose every other client's questions with it.
"""

from collections.abc import Callable, Iterator

import pytest

from protocol.pb import PulsarApi_pb2 as pb
from tests.pulsar.admin import Admin
from tests.pulsar.proxy_process import host_and_port
from tests.support.clients.wire import WireClient, WireError

pytestmark = pytest.mark.pulsar

STRING_SCHEMA = pb.Schema(name="s", type=pb.Schema.String, schema_data=b"")
POISON: dict[str, Callable[[WireClient], object]] = {
    "empty namespace": lambda client: client.get_topics(""),
    "namespace without tenant": lambda client: client.get_topics("namespace"),
    "namespace of three parts": lambda client: client.get_topics("a/b/c"),
    "namespace with a space": lambda client: client.get_topics("public/a b"),
    "short schema version": lambda client: client.get_schema("persistent://public/default/t", b"short"),
    "schema for no topic": lambda client: client.get_or_create_schema("no/topic", STRING_SCHEMA),
    "schema for no domain": lambda client: client.get_or_create_schema("foo://public/default/t", STRING_SCHEMA),
}


@pytest.fixture
def neighbour(proxy_url: str) -> Iterator[WireClient]:
    with WireClient(*host_and_port(proxy_url)) as client:
        client.connect()
        yield client


@pytest.mark.parametrize("poison", POISON.values(), ids=POISON.keys())
def test_a_poisonous_request_is_answered_and_neighbours_lose_nothing(
    neighbour: WireClient,
    wire: WireClient,
    admin: Admin,
    namespace: str,
    poison: Callable[[WireClient], object],
) -> None:
    admin.create_topic(f"persistent://{namespace}/{'long-' * 20}", partitions=500)
    expected = admin.topics(namespace)
    asked = [neighbour.ask_topics(namespace) for _ in range(10)]
    refusal: WireError | None = None
    try:
        answer = poison(wire)
    except WireError as error:
        refusal = error
    asked += [neighbour.ask_topics(namespace) for _ in range(10)]
    for request_id in asked:
        assert sorted(neighbour.answer_to(request_id).getTopicsOfNamespaceResponse.topics) == expected
    assert refusal or answer.HasField("error_code")  # type: ignore[attr-defined]
