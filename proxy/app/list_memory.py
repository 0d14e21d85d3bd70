"""The memory of topic lists: both limiters, free slabs, what lists cost last time, and who is charged."""

import asyncio

from protocol.slabs import SlabPool
from proxy.app import settings as limits
from proxy.auth.fairness_key import FairnessKeys
from proxy.config.config import Config
from proxy.requests.topic_lists.sizes import ListSizes
from proxy.telemetry.counters import LimiterMetrics


class ListMemory:
    """What all topic lists share, whichever door they come through."""

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop) -> None:
        self.heap_waits = LimiterMetrics(loop.time)
        self.direct_waits = LimiterMetrics(loop.time)
        self.limiter = limits.limiter(config, loop, self.heap_waits, self.direct_waits)
        self.slabs = SlabPool(limits.spare_slabs(config))
        self.sizes = ListSizes(limits.first_estimate(config))
        self.fairness_keys = FairnessKeys(config.topic_list_fairness)

    def waiters_served(self) -> int:
        """Count those who waited for memory and got it."""
        return self.heap_waits.served_waiters + self.direct_waits.served_waiters

    def apply(self, config: Config) -> None:
        """Change limits, queues and timeouts of both memories; what is held stays held."""
        heap, direct = self.limiter.heap, self.limiter.direct
        heap.max_queue = config.max_topic_list_in_flight_heap_mem_size_permits_acquire_queue_size
        direct.max_queue = config.max_topic_list_in_flight_direct_mem_size_permits_acquire_queue_size
        heap.timeout_seconds = config.max_topic_list_in_flight_heap_mem_size_permits_acquire_timeout_millis / 1000
        direct.timeout_seconds = config.max_topic_list_in_flight_direct_mem_size_permits_acquire_timeout_millis / 1000
        heap.set_limit(config.heap_limit_bytes)
        direct.set_limit(config.direct_limit_bytes)
        self.slabs.set_spare(limits.spare_slabs(config))
        limits.share_memory(self.limiter, config)
        self.fairness_keys.fairness = config.topic_list_fairness
