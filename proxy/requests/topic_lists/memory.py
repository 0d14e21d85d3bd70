"""The memory of topic lists: both limiters, who may wait for them and who has to go, and what helps to choose sizes.

A list's way through them is in `service.py`. Web clients, schemas and unread answers take direct memory, too.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from limiter.dual import AsyncDualMemoryLimiter
from limiter.semaphore import AsyncSemaphore
from protocol.slabs import SLAB_BYTES, SlabPool
from protocol.topic_list import ANSWER_OVERHEAD_BYTES
from proxy.auth.fairness_key import FairnessKeys
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.net.write_watch import WriteWatch
from proxy.requests.topic_lists import unproven
from proxy.requests.topic_lists.broker_queues import BrokerQueues, TopicListLimits
from proxy.requests.topic_lists.memory_metrics import LIMITERS, PIP_442, Memories
from proxy.requests.topic_lists.sizes import ListSizes
from proxy.requests.topic_lists.unproven import UnprovenReaders
from proxy.telemetry.limiter_metrics import LimiterMetrics

if TYPE_CHECKING:
    from proxy.net.spill.space import SpillSpace
    from proxy.net.spill.spill import ListSpill

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
    share_by_key: bool
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
            share_by_key=config.shares_by_key,
            key_percent=config.key_percent,
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
        disk = _space(core)
        self.unproven = UnprovenReaders(self.limiter, loop, 100, disk)
        # Questions at each broker, and answers that come from it.
        self.queues = BrokerQueues(loop, self.limiter, TopicListLimits.of(core.config))
        # Who takes answers too slowly, and the slow lists that go to disk; None without a directory.
        self.writes = WriteWatch(core, self.unproven, self.queues, self.waiters_served, self.unproven.most_owed, disk)
        self.spill = None if disk is None else _spill(core, disk, self.writes)
        self.slabs = SlabPool(0, self._unused_bytes)
        self.sizes = ListSizes(_FIRST_ESTIMATE_BYTES)
        self.fairness_keys = FairnessKeys(settings.fairness)
        self.apply(settings)
        counters.show(unproven.HELD_BYTES, lambda: self.unproven.shares.held)
        counters.show(unproven.WAITING, lambda: self.unproven.waiting)
        counters.derive((*PIP_442, *LIMITERS), self.statistics)

    def statistics(self) -> Memories:
        """Return the numbers of both limiters at this moment: with thousands of keys that takes a while."""
        return Memories(
            self.queues.statistics(), self.unproven.statistics(),
            self.heap_waits.wait_millis, self.direct_waits.wait_millis,
        )  # fmt: skip

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
        self._share(settings)
        self.fairness_keys.fairness = settings.fairness

    def _unused_bytes(self) -> int:
        """Return the memory of both limits that no permit has; 0 while either is without a limit."""
        heap, direct = self.limiter.heap, self.limiter.direct
        if heap.limit <= 0 or direct.limit <= 0:
            return 0
        return heap.available + direct.available

    def _share(self, settings: MemorySettings) -> None:
        self.limiter.set_sharing(settings.share_by_key, settings.key_percent)
        # Networks take turns in the shares where all others are in one line.
        self.unproven.set_sharing(True, settings.key_percent)


def _space(core: Core) -> "SpillSpace | None":
    """Return the space on the disk for lists; None without a directory, and then the modules are not imported."""
    if not core.config.topic_list_spill_directory:
        return None
    from proxy.net.spill.spill import make_space

    return make_space(core)


def _spill(core: Core, space: "SpillSpace", writes: WriteWatch) -> "ListSpill":
    from proxy.net.spill.spill import make_spill

    return make_spill(core, space, lambda: writes.short)
