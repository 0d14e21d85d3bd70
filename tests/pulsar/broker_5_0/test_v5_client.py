"""What the V5 client does, and what other clients do most, with a broker 5.0.1."""

from collections.abc import Callable, Mapping

import pytest

# The same tests, with the fixtures of this package.
from tests.pulsar.broker_4_0.test_older_broker import (  # noqa: F401
    test_a_client_of_5_0_is_told_what_is_not_served_and_goes_on,
)
from tests.pulsar.broker_5_0.conftest import WELL, Scenarios
from tests.pulsar.pages import proxy_metrics
from tests.pulsar.proxy_process import Proxy
from tests.pulsar.test_produce_consume import (  # noqa: F401
    test_a_chunked_message_of_12_mib_arrives_unchanged,
    test_messages_arrive_in_order,
)
from tests.pulsar.test_schema import (  # noqa: F401
    test_get_or_create_schema_gives_an_equal_schema_the_same_version,
    test_get_or_create_schema_refuses_an_incompatible_one_with_a_code,
)
from tests.pulsar.test_topics import (  # noqa: F401
    test_a_pattern_subscription_gets_all_matching_topics_and_no_other,
    test_topic_lists_equal_the_admin_interfaces,
)

pytestmark = pytest.mark.pulsar


@pytest.mark.timeout(400)
def test_the_v5_client_produces_consumes_watches_and_transacts(
    run_v5_client: Callable[..., Scenarios], new_proxy: Callable[[Mapping[str, str]], Proxy], namespace: str
) -> None:
    proxy = new_proxy({})
    assert run_v5_client(proxy.service_url, namespace) == WELL
    # The client found no other way.
    assert proxy_metrics(proxy)("relay_bytes_total", direction="to_client") > 0
