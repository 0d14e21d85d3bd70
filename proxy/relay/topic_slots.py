"""The bounded table of the topics that clients produce to: a slot for each, in whose books their messages are counted.

Rule: the table never grows beyond `MOST_SLOTS`. A topic without a slot, because the table is full, or because its name
is empty, too long or no UTF-8, is counted in the slot OTHER, together with all others of its kind. A topic keeps its
slot while it has a producer, and for a while after that, so that the books of one that comes again go on. No network
brings so many topics that no slots are left for the topics of others: each has at most three times what is free.

A slot is a number, so that counting a message costs no look-up of a name. The books of all slots are the extension's
(`native/src/relay/slots.rs`): all connections of a topic share a pair of buckets of tokens there.
"""

from collections.abc import Callable, Hashable, Iterator
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from proxy.core.native import SlotBooks

# The slot of everything that has none of its own.
OTHER: Final = 0
# A bucket holds the tokens of this long; at least those of its floor (`native/src/relay/slots.rs`).
CAPACITY_SECONDS: Final = 0.25
BYTES_FLOOR: Final = 65_536.0
MESSAGES_FLOOR: Final = 64.0
MOST_SLOTS: Final = 65_536
# The topics that a network has brought, for each free slot: three quarters of the table for a network alone, and as
# much of the rest for the next, so that however many take their part, some are left.
MOST_FOR_EACH_FREE: Final = 3
# A longer name has no slot; the scanner tells none.
MOST_NAME_BYTES: Final = 512
# A topic without producers keeps its slot for this long.
UNUSED_SECONDS: Final = 300.0
# Slots that one call of `close_unused` looks at.
_LOOKS_A_CALL: Final = 2_048


# The rates of a topic that is new, by its slot and its name.
Begin = Callable[[int, str], tuple[float, float] | None]


class SlotSample(NamedTuple):
    """The books of one topic; the slot OTHER has no name.

    Bytes (of whole frames) and messages since the process began, or since the topic came. `ran_dry`: a limit had no
    tokens left since the last sample. `relays`: producers that are open; a connection with two counts twice.
    """

    slot: int
    topic: str
    bytes: int
    messages: int
    ran_dry: bool
    relays: int


class RateCounts(NamedTuple):
    """The counts of all topics since the process began.

    `without_slot`: producers whose topic got no slot of its own. `forced`: frames that passed because their pause was
    too long. `unasked`: PRODUCERs that no slot was asked for. `unreadable`: connections whose sizes made no sense.
    """

    without_slot: int
    forced: int
    unasked: int
    unreadable: int


class _SlotTopic:
    __slots__ = ("came", "name", "network", "unused_since")

    def __init__(self, name: str, came: int, network: Hashable) -> None:
        self.name = name
        self.came = came
        self.network = network
        self.unused_since: float | None = None


class TopicSlots:
    """The topics and their slots. `clock` is the loop's, `books` those of the threads.

    `enabled` is set before relays join: a relay that joins while it is False is never counted. No method but `walk`
    goes through the whole table, and that in steps.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        books: "SlotBooks",
        most_slots: int = MOST_SLOTS,
    ) -> None:
        self._clock = clock
        self._books = books
        self._most = most_slots
        self._slot_of: dict[str, int] = {}
        # By slot; None is a free one, and OTHER has no topic.
        self._topics: list[_SlotTopic | None] = [None]
        self._free: list[int] = []
        # How many slots are there for topics that a network was the first to name.
        self._brought: dict[Hashable, int] = {}
        self._came = 0
        self._next_look = OTHER + 1
        self.enabled = False
        # Says with which bytes and messages a second a new topic begins, None for no limit.
        self._begin: Begin | None = None
        # Topics that got no slot of their own, each time that a producer came.
        self.without_slot = 0

    def __len__(self) -> int:
        return len(self._slot_of)

    @property
    def books(self) -> "SlotBooks":
        """Return the counters and limits, by slot."""
        return self._books

    @property
    def counts(self) -> RateCounts:
        """Return what the table and its books count in all."""
        return RateCounts(self.without_slot, *self._books.counts())

    def slot_of(self, topic: bytes, network: Hashable = None) -> int:
        """Return the slot of a topic, a new one if need be, held once for the producer; OTHER is not held.

        `network` is that of the client; None is bounded by the table only.
        """
        slot = self._slot_by_name(topic, network)
        if slot == OTHER:
            self.without_slot += 1
        else:
            found = self._topics[slot]
            assert found is not None
            found.unused_since = None
            self._books.hold(slot)
        return slot

    def _slot_by_name(self, topic: bytes, network: Hashable) -> int:
        # OTHER has the empty name.
        if not 0 < len(topic) <= MOST_NAME_BYTES:
            return OTHER
        try:
            name = topic.decode()
        except UnicodeDecodeError:
            return OTHER
        slot = self._slot_of.get(name)
        if slot is not None:
            return slot
        if not self._room_for(network):
            return OTHER
        self._came += 1
        if self._free:
            slot = self._free.pop()
        else:
            slot = len(self._topics)
            self._topics.append(None)
        self._slot_of[name] = slot
        self._topics[slot] = _SlotTopic(name, self._came, network)
        self._brought[network] = self._brought.get(network, 0) + 1
        self._limit_new(slot, name)
        return slot

    def begin_with(self, begin: Begin | None) -> None:
        """Limit new topics to the rates that `begin` says; None for no limits."""
        self._begin = begin

    def _limit_new(self, slot: int, name: str) -> None:
        """Limit a new topic before its first message, if new topics are limited."""
        rates = None if self._begin is None else self._begin(slot, name)
        if rates is None:
            return
        now = self._clock()
        self._books.set_rate(slot, *rates, now)
        # The first bucket of a slot is full. A client with a new topic for each frame would send from full ones only.
        for count, (rate, floor) in enumerate(zip(rates, (BYTES_FLOOR, MESSAGES_FLOOR), strict=True)):
            full = ceil(max(CAPACITY_SECONDS * rate, floor))
            self._books.debit(slot, full * (not count), full * count, now)

    def _room_for(self, network: Hashable) -> bool:
        free = self._most - len(self._slot_of)
        if network is None:
            return free > 0
        return self._brought.get(network, 0) < MOST_FOR_EACH_FREE * free

    def walk(self) -> Iterator[SlotSample]:
        """Yield the books of all topics, those of OTHER first; a caller with many may stop in between.

        A topic that comes meanwhile is left out, also at a slot that was freed.
        """
        take, last = self._books.take, self._came
        yield SlotSample(OTHER, "", *take(OTHER))
        for slot in range(OTHER + 1, len(self._topics)):
            topic = self._topics[slot]
            if topic is not None and topic.came <= last:
                yield SlotSample(slot, topic.name, *take(slot))

    def set_rate(self, slot: int, bytes_per_second: float | None, messages_per_second: float | None) -> None:
        """Change the limits of a slot, None for no limit; tokens and debt stay.

        A slot without a topic is left alone: the topic may have gone since the sample.
        """
        if slot != OTHER and (slot >= len(self._topics) or self._topics[slot] is None):
            return
        self._books.set_rate(slot, bytes_per_second, messages_per_second, self._clock())

    def close_unused(self, now: float) -> None:
        """Free the slots of topics that had no producer for a while; looks at a part of the table each time."""
        ends = min(self._next_look + _LOOKS_A_CALL, len(self._topics))
        for slot in range(self._next_look, ends):
            self._look(slot, now)
        self._next_look = OTHER + 1 if ends == len(self._topics) else ends

    def _look(self, slot: int, now: float) -> None:
        topic = self._topics[slot]
        if topic is None:
            return
        if self._books.producers(slot):
            topic.unused_since = None
        elif topic.unused_since is None:
            topic.unused_since = now
        elif now - topic.unused_since >= UNUSED_SECONDS:
            self._topics[slot] = None
            del self._slot_of[topic.name]
            self._brought[topic.network] -= 1
            if not self._brought[topic.network]:
                del self._brought[topic.network]
            self._books.clear(slot)
            self._free.append(slot)
