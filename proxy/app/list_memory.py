"""The memory of topic lists: both limiters, free slabs, the sizes of earlier lists, and fairness keys.

Beside them the part of direct memory that large frames of clients take.
"""

from dataclasses import dataclass
from typing import Final, Self

from limiter.dual import AsyncDualMemoryLimiter
from limiter.semaphore import AsyncSemaphore
from protocol.slabs import SLAB_BYTES, SlabPool
from protocol.topic_list import ANSWER_OVERHEAD_BYTES
from proxy.auth.fairness_key import FairnessKeys
from proxy.clients.large_frames import SHARE_PART
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.requests.topic_lists import unproven
from proxy.requests.topic_lists.sizes import ListSizes
from proxy.requests.topic_lists.unproven import UnprovenReaders
from proxy.telemetry.limiter_metrics import LimiterMetrics

MOST_SPARE_SLABS: Final = 64
# The heap permit of a list whose size is not known: most lists are short, and a permit grows with what arrives.
_FIRST_ESTIMATE_BYTES: Final = 1024 + ANSWER_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Limits, queues and timeouts of both memories, and what a key of fairness may have; 0 bytes: no limit."""

    heap_bytes: int
    heap_queue: int
    heap_seconds: float
    direct_bytes: int
    direct_queue: int
    direct_seconds: float
    fairness: str
    key_percent: int
    unproven_percent: int

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the settings of a configuration."""
        return cls(
            heap_bytes=config.heap_limit_bytes,
            heap_queue=config.max_topic_list_in_flight_heap_mem_size_permits_acquire_queue_size,
            heap_seconds=config.seconds(Config.max_topic_list_in_flight_heap_mem_size_permits_acquire_timeout_millis),
            direct_bytes=config.direct_limit_bytes,
            direct_queue=config.max_topic_list_in_flight_direct_mem_size_permits_acquire_queue_size,
            direct_seconds=config.seconds(
                Config.max_topic_list_in_flight_direct_mem_size_permits_acquire_timeout_millis
            ),
            fairness=config.topic_list_fairness,
            key_percent=config.topic_list_max_memory_percent_per_key,
            unproven_percent=config.topic_list_unproven_readers_memory_percent,
        )

    @property
    def spare_slabs(self) -> int:
        """The size of the pool of free slabs: small beside the limits, so that free slabs stay in their slack."""
        if not (self.heap_bytes and self.direct_bytes):
            return MOST_SPARE_SLABS
        return min(MOST_SPARE_SLABS, (self.heap_bytes + self.direct_bytes) // 32 // SLAB_BYTES)


class ListMemory:
    """The memory that all topic lists share, of Pulsar clients and of web clients."""

    def __init__(self, core: Core) -> None:
        loop, counters = core.loop, core.counters
        self.heap_waits = LimiterMetrics(core.clock)
        self.direct_waits = LimiterMetrics(core.clock)
        settings = MemorySettings.of(core.config)
        heap, direct = (
            AsyncSemaphore(name, 0, max_queue=0, timeout_seconds=0, clock=loop, observer=waits.waited)
            for name, waits in (("heap", self.heap_waits), ("direct", self.direct_waits))
        )
        self.limiter = AsyncDualMemoryLimiter(heap, direct)
        self.unproven = UnprovenReaders(self.limiter, loop, 100)
        self.frames = direct.share("direct for large frames", 1 / SHARE_PART, share_by_key=True)
        self.slabs = SlabPool(0, self._unused_bytes)
        self.sizes = ListSizes(_FIRST_ESTIMATE_BYTES)
        self.fairness_keys = FairnessKeys(settings.fairness)
        self.apply(settings)
        counters.show(unproven.HELD_BYTES, lambda: self.unproven.shares.held)
        counters.show(unproven.WAITING, lambda: self.unproven.waiting)

    def waiters_served(self) -> int:
        """Return the number of waiters that got memory so far."""
        return self.heap_waits.served_waiters + self.direct_waits.served_waiters

    def apply(self, settings: MemorySettings) -> None:
        """Apply limits, queues and timeouts of both memories; held permits stay held."""
        heap, direct = self.limiter.heap, self.limiter.direct
        heap.max_queue, direct.max_queue = settings.heap_queue, settings.direct_queue
        heap.timeout_seconds, direct.timeout_seconds = settings.heap_seconds, settings.direct_seconds
        heap.set_limit(settings.heap_bytes)
        direct.set_limit(settings.direct_bytes)
        self.slabs.set_spare(settings.spare_slabs)
        self.unproven.apply(settings.unproven_percent)
        self.frames.follow()
        self._share(settings)
        self.fairness_keys.fairness = settings.fairness

    def _unused_bytes(self) -> int:
        """Return the memory of both limits that no permit has; 0 while either is without a limit."""
        heap, direct = self.limiter.heap, self.limiter.direct
        if heap.limit <= 0 or direct.limit <= 0:
            return 0
        return heap.available + direct.available

    def _share(self, settings: MemorySettings) -> None:
        share_by_key = settings.fairness != "fifo"
        self.limiter.set_sharing(share_by_key, settings.key_percent)
        # Networks take turns in the shares where all others are in one line: no cap goes with that.
        self.unproven.set_sharing(True, settings.key_percent if share_by_key else 100)
