"""Topic lists beyond 5 MiB: a broker sends them whatever its own maxMessageSize, and a client may not take them.

Broker and proxy have no frame limit between them but `topicListMaxAnswerBytes`; the client's limit is
maxMessageSize and 10 KiB. A list above it would end the client's connection, so the client is told
the size and the ways out instead.
"""

import uuid
from collections.abc import Callable, Mapping

import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.proxy_process import Proxy, connected
from tests.pulsar.scenario import whole_list
from tests.pulsar.standalone import Broker
from tests.support.clients.wire import ServerRefusedError

pytestmark = pytest.mark.pulsar

WIDE = 10_700  # partitions: 5.6 MiB
NARROW = 100


@pytest.fixture(scope="module")
def large(admin: Admin) -> str:
    """Give a namespace whose whole list is beyond 5 MiB and 10 KiB."""
    name = f"public/large-{uuid.uuid4().hex[:12]}"
    admin.create_namespace(name)
    admin.create_topic(f"persistent://{name}/{'w' * 480}", WIDE)
    admin.create_topic(f"persistent://{name}/narrow", NARROW)
    return name


def test_a_client_is_told_the_size_and_the_ways_out_and_goes_on_with_a_pattern(
    service_url: str, broker: Broker, large: str
) -> None:
    pattern = f"persistent://{large}/n.*"
    expected = [topic for topic in whole_list(broker.service_url, large) if "/narrow-" in topic]
    assert len(expected) == NARROW
    with connected(service_url) as client:
        asked = [client.ask_topics(large), client.ask_topics(large, pattern=pattern), client.ask_topics(large)]
        for request_id in (asked[0], asked[2]):
            with pytest.raises(ServerRefusedError, match=r"^NotAllowedError: ") as refused:
                client.answer_to(request_id)
            assert f"{WIDE + NARROW} topics" in refused.value.message
            assert "the client accepts 5253120: ask with a topics pattern, or raise" in refused.value.message
        assert list(client.answer_to(asked[1]).getTopicsOfNamespaceResponse.topics) == expected


def test_a_list_beyond_5_mib_comes_whole_where_the_client_may_take_it(
    new_proxy: Callable[[Mapping[str, str]], Proxy], broker: Broker, large: str
) -> None:
    proxy = new_proxy({"maxMessageSize": "16777216"})
    with connected(proxy.service_url) as client:
        answer = client.get_topics(large)
    assert answer.ByteSize() > 5 * 1024 * 1024 + 10 * 1024
    assert list(answer.topics) == whole_list(broker.service_url, large)
