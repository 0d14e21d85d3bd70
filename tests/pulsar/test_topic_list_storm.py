"""Upstream's own scenario at an eighth of its list: everybody is served, and memory stays where docs/memory.md says.

The full size runs in `python -m benchmarks.real_broker`.
"""

import asyncio
import uuid
from collections.abc import Callable, Mapping

import pytest

from tests.pulsar import scenario
from tests.pulsar.admin import Admin
from tests.pulsar.memory import MIB, promised_growth
from tests.pulsar.pages import proxy_metrics
from tests.pulsar.proxy_process import Proxy
from tests.pulsar.standalone import Broker

pytestmark = pytest.mark.pulsar

PARTITIONS = 1024
# Each of the two: 16 MiB for 500 lists of 0.5 MiB. What the proxy allocates once, at its first lists (measured: 4 MB),
# is in no term of the promise; with limits of 4 MiB it would be most of what is left over.
LIMIT_MIB = 8
KEYS = {
    "maxTopicListInFlightHeapMemSizeMB": str(LIMIT_MIB),
    "maxTopicListInFlightDirectMemSizeMB": str(LIMIT_MIB),
    # A slow machine must not be what refuses.
    "topicListRequestTimeoutMillis": "110000",
    "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis": "110000",
    "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis": "110000",
}


async def test_a_storm_beside_pattern_consumers_is_served_whole_within_its_memory(
    new_proxy: Callable[[Mapping[str, str]], Proxy], broker: Broker, admin: Admin
) -> None:
    name = f"public/storm-{uuid.uuid4().hex[:12]}"
    filled = await asyncio.to_thread(scenario.fill, admin, broker.service_url, name, PARTITIONS)
    # No two requests are equal: nothing is shared.
    proxy = new_proxy(KEYS)
    report = await scenario.run(proxy, scenario.Load(filled, shared=False, window=1))
    outcome, largest = report.outcome, report.outcome.largest_frame_bytes
    assert (outcome.errors, outcome.lost, outcome.answered) == ({}, 0, scenario.REQUESTS)
    assert report.read == [filled.consumed] * scenario.CONSUMERS
    listed = scenario.whole_list(broker.service_url, filled.name)
    assert len(listed) == PARTITIONS + scenario.CONSUMED_TOPICS
    # One and the same body for all, as long as the broker's.
    assert len(outcome.lists) == 1
    assert largest > sum(map(len, listed))
    connections = scenario.CONNECTIONS + 2 * scenario.CONSUMERS
    assert report.peak - report.idle <= promised_growth(2 * LIMIT_MIB, connections, largest)
    # The promise says something here: without a limit far more would be in memory at once.
    assert promised_growth(2 * LIMIT_MIB, connections, largest) < scenario.REQUESTS * largest / 10
    metrics = await asyncio.to_thread(proxy_metrics, proxy)
    assert metrics("lists_answers_total", outcome="answered") == scenario.REQUESTS + scenario.CONSUMERS
    for limiter in ("heap", "direct"):
        assert metrics("lists_queue_full_total", limiter=limiter) == 0
        assert metrics(f"topic_list_{limiter}_timeout_total") == 0
        assert metrics(f"topic_list_{limiter}_memory_used_bytes") == 0
        assert metrics("lists_peak_held_bytes", limiter=limiter) <= LIMIT_MIB * MIB + largest + 65536
