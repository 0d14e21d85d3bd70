"""What overload control works with."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.core.log import Logger
from proxy.overload.counters import OverloadCounters
from proxy.overload.report import Record
from proxy.overload.samples import MemorySample, OwnerBytes
from proxy.relay.engine import Relay
from proxy.relay.topic_slots import TopicSlots

if TYPE_CHECKING:
    from proxy.overload.broker_questions import BrokerQuestions
    from proxy.overload.machine_memory import MachineMemory

OffLoop = Callable[[Callable[[], MemorySample | None]], Awaitable[MemorySample | None]]


@dataclass(frozen=True, slots=True)
class OverloadParts:
    """The parts that overload control works with; `brokers` is None without web services, `record` without events."""

    relays: Callable[[], Iterable[Relay]]
    rates: TopicSlots
    memory: "MachineMemory"
    brokers: "BrokerQuestions | None"
    owners: Callable[[], OwnerBytes]
    off_loop: OffLoop
    counters: OverloadCounters
    log: Logger
    record: Record | None = None
