"""Topic lists beyond 5 MiB: a broker sends them whatever its own maxMessageSize, and a client may not take them.

Broker and proxy have no frame limit between them but `topicListMaxAnswerBytes`; the client's limit is
maxMessageSize and 10 KiB. A list above it would end the client's connection, so the client is told
the size and the ways out instead.
"""

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


def test_a_list_beyond_5_mib_comes_whole_where_the_client_may_take_it_and_else_it_is_told_the_ways_out(
    new_proxy: Callable[[Mapping[str, str]], Proxy], service_url: str, broker: Broker, admin: Admin, namespace: str
) -> None:
    admin.create_topic(f"persistent://{namespace}/{'w' * 480}", WIDE)
    admin.create_topic(f"persistent://{namespace}/narrow", NARROW)
    whole = whole_list(broker.service_url, namespace)
    with connected(new_proxy({"maxMessageSize": "16777216"}).service_url) as client:
        answer = client.get_topics(namespace)
    assert answer.ByteSize() > 5 * 1024 * 1024 + 10 * 1024
    assert list(answer.topics) == whole
    pattern = f"persistent://{namespace}/n.*"
    with connected(service_url) as client:
        asked = [client.ask_topics(namespace, pattern=each) for each in (None, pattern, None)]
        for request_id in (asked[0], asked[2]):
            with pytest.raises(ServerRefusedError, match=r"^NotAllowedError: ") as refused:
                client.answer_to(request_id)
            assert f"{WIDE + NARROW} topics" in refused.value.message
            assert "the client accepts 5253120: ask with a topics pattern, or raise" in refused.value.message
        found = list(client.answer_to(asked[1]).getTopicsOfNamespaceResponse.topics)
    assert found == [topic for topic in whole if "/narrow-" in topic]
    assert len(found) == NARROW
