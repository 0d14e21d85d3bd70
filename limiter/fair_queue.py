"""Own the order of newcomers that share by key: deficit round robin over bytes, first in first out inside a key.

Rules (docs/adr/0007):
- Each key that waits gets a quantum a round. It is served while it has credit left, its credit may go below 0, and
  what it owes it pays by sitting out rounds. Rounds that nobody could use are skipped at the next grant, so memory
  never idles for a debt.
- The key whose turn it is holds up the others while its first request does not fit into the pool. A key that its
  cap keeps out holds up nobody: it is parked until one of its own permits shrinks or ends.
- Growth is booked as debt, while somebody waits who could go. Nobody waiting at all: all debts are forgiven.

Credit is kept as one number per key, `spent`, on a scale common to all: round r is the quantum that begins at
r * quantum, so a key's round is `spent // quantum` and no round has to be walked through to be paid for.
The module books nothing and grants nothing: it says who is next.
"""

import heapq
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from operator import attrgetter

from limiter.ledger import Ledger
from limiter.permit import AcquireWaiter
from limiter.queue import LinkedList, WaiterQueue

__all__ = ["MAX_IDLE_DEBTORS", "QUANTA_PER_LIMIT", "FairQueue", "KeyQueue"]

QUANTA_PER_LIMIT = 1024
MAX_IDLE_DEBTORS = 4096
_by_arrival = attrgetter("arrival")


class Round(LinkedList["KeyQueue"]):
    """The keys whose turn comes in one round, in the order of their turns."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class KeyQueue(WaiterQueue[AcquireWaiter]):
    """Those of one key that wait, and what the key has spent.

    It stands in one chain of `Shares`, which is its state: a ring, the parked, or the idle that still owe.
    """

    __slots__ = ("_fair_queue", "key", "next", "previous", "queue", "spent")

    def __init__(self, fair_queue: "FairQueue", key: Hashable, on_cancel: Callable[[AcquireWaiter], None]) -> None:
        super().__init__(on_cancel)
        self._fair_queue = fair_queue
        self.key = key
        self.spent = 0
        self.queue: LinkedList[KeyQueue] | None = None
        self.previous: KeyQueue | None = None
        self.next: KeyQueue | None = None

    def remove(self, member: AcquireWaiter) -> None:
        """Take one out, from any place, and give the key the state that follows from it."""
        was_first = member is self.head
        super().remove(member)
        self._fair_queue.on_removed(self, was_first)

    def insert_by_arrival(self, waiter: AcquireWaiter) -> None:
        """Put one in that has waited elsewhere; looked for from both ends, most are near one of them."""
        first, last = self.head, self._tail
        while first is not None and last is not None:
            if last.arrival < waiter.arrival:
                self.insert(waiter, last)
                return
            if first.arrival > waiter.arrival:
                self.insert(waiter, first.previous)
                return
            first, last = first.next, last.previous
        self.insert(waiter, None)


class FairQueue:
    """Take the place of `WaiterQueue` for newcomers; the caller tells it of all that changes what a key holds.

    `cap_percent` of the limit is the most that a key may hold when a newcomer of it is let in, 100 is no cap; one
    larger than that is let in when its key holds nothing. Keys are kept alive while they wait or owe.
    """

    __slots__ = (
        "_arrivals",
        "_cap",
        "_cap_percent",
        "_capped",
        "_current_round",
        "_idle",
        "_key_queues",
        "_ledger",
        "_on_cancel",
        "_quantum",
        "_round_heap",
        "_rounds",
        "_waiting",
    )

    def __init__(self, ledger: Ledger, cap_percent: int, on_cancel: Callable[[AcquireWaiter], None]) -> None:
        self._ledger = ledger
        self._on_cancel = on_cancel
        self._arrivals = 0
        self._waiting = 0
        self._current_round = 0  # of the last grant
        self._key_queues: dict[Hashable, KeyQueue] = {}
        self._rounds: dict[int, Round] = {}
        self._round_heap: list[int] = []  # a heap of the rings' numbers, each of them once
        self._capped: LinkedList[KeyQueue] = LinkedList()
        self._idle: LinkedList[KeyQueue] = LinkedList()
        self._cap_percent = cap_percent
        self._measure()

    def __len__(self) -> int:
        return self._waiting

    # What WaiterQueue does

    @property
    def head(self) -> AcquireWaiter | None:
        """Return who goes next, None if nobody waits but those whose cap keeps them out."""
        leader = self._next_key_queue()
        return None if leader is None else leader.head

    def push(self, waiter: AcquireWaiter) -> None:
        """Put `waiter` at the end of its key; a key that did not wait takes its turn after all of this round."""
        key_queue = self._key_queue_of(waiter.key)
        self._arrivals += 1
        waiter.arrival = self._arrivals
        key_queue.push(waiter)
        self._waiting += 1
        if key_queue.queue is None:
            self._join(key_queue)

    def remove(self, waiter: AcquireWaiter) -> None:
        """Take `waiter` out, wherever it stands; it pays nothing."""
        assert waiter.queue is not None, "waiter stands in no queue"
        waiter.queue.remove(waiter)

    def drain(self) -> list[AcquireWaiter]:
        """Take all out, in the order in which they came, and forget all debts."""
        waiters: list[AcquireWaiter] = []
        for key_queue in list(self._key_queues.values()):
            waiters.extend(key_queue.drain())
        waiters.sort(key=_by_arrival)
        return waiters

    def __iter__(self) -> Iterator[AcquireWaiter]:
        """Yield the first of each key, then the second of each; keys in the order of their turns, the parked last.

        An order to look at: how much each key may take in its turn is not weighed. Nothing may change meanwhile.
        """
        chains = (*(self._rounds[number] for number in sorted(self._rounds)), self._capped)
        waiters: Iterable[AcquireWaiter | None] = (key_queue.head for chain in chains for key_queue in chain)
        while True:
            shown = []
            for waiter in waiters:
                if waiter is not None:
                    yield waiter
                    shown.append(waiter)
            if not shown:
                return
            waiters = [waiter.next for waiter in shown]

    # What is asked before a grant, and told after it

    def admits(self, key: Hashable, n: int) -> bool:
        """Return whether a newcomer that has not queued would go before all who wait, if it fits."""
        key_queue = self._key_queues.get(key)
        if (key_queue is not None and key_queue.head is not None) or self.at_cap(key, n):
            return False
        leader = self._next_key_queue()
        return leader is None or self._joining_round(key_queue) < leader.spent // self._quantum

    def spend_unqueued(self, key: Hashable, n: int) -> None:
        """Book `n` to a newcomer that was let in without queueing."""
        if self._next_key_queue() is None:
            return
        key_queue = self._key_queue_of(key)
        self._current_round = self._joining_round(key_queue)
        key_queue.spent = max(key_queue.spent, self._current_round * self._quantum) + n
        self._retire(key_queue)
        self._drop_paid()

    def grant(self, waiter: AcquireWaiter, n: int) -> None:
        """Take the head out and book `n` to its key; its round has come, and the rounds before are over."""
        key_queue = waiter.queue
        assert isinstance(key_queue, KeyQueue), "waiter stands in no queue"
        self._current_round = key_queue.spent // self._quantum
        key_queue.spent += n
        key_queue.remove(waiter)
        self._drop_paid()

    def spend(self, key: Hashable, n: int) -> None:
        """Book growth to `key` as debt; `n < 0` gives back what was not used, but makes no credit.

        While nobody waits who could go, nothing is owed to anybody.
        """
        if self._next_key_queue() is None:
            return
        key_queue = self._key_queue_of(key)
        round_ = key_queue.queue
        if isinstance(round_, Round):
            floor = min(round_.number, self._current_round + 1) * self._quantum
            key_queue.spent = max(key_queue.spent + n, floor)
            if key_queue.spent // self._quantum < round_.number:
                self._join(key_queue)
            return
        key_queue.spent = max(key_queue.spent, self._next_round_start()) + n
        if key_queue.head is None:
            self._retire(key_queue)

    def in_deficit(self, key: Hashable) -> bool:
        """Return whether `key` owes so much that its turn comes in a later round than the head's."""
        key_queue, leader = self._key_queues.get(key), self._next_key_queue()
        return (
            key_queue is not None
            and leader is not None
            and key_queue.spent // self._quantum > leader.spent // self._quantum
        )

    def on_freed(self, key: Hashable) -> None:
        """Look at a key again that holds less than before; its cap may let it in now."""
        key_queue = self._key_queues.get(key)
        if key_queue is not None and key_queue.queue is self._capped:
            self._join(key_queue)

    def move(self, waiter: AcquireWaiter, key: Hashable) -> None:
        """Give a waiter another key; it stands there where it would stand had it come with that key.

        The search for that place is at worst linear in those of the new key that wait.
        """
        self.remove(waiter)
        waiter.key = key
        key_queue = self._key_queue_of(key)
        key_queue.insert_by_arrival(waiter)
        self._waiting += 1
        if key_queue.queue is None or (key_queue.queue is self._capped and key_queue.head is waiter):
            self._join(key_queue)

    # What an operator changes, and looks at

    def set_cap(self, cap_percent: int) -> None:
        """Change the cap live; nothing is taken back from a key that holds more."""
        self._cap_percent = cap_percent
        self.limit_changed()

    def limit_changed(self) -> None:
        """Measure quantum and cap anew; order and debts, in bytes, stay as they are."""
        begin = self._next_round_start()
        rounds = [self._rounds[number] for number in sorted(self._rounds)]
        key_queues = [key_queue for chain in (*rounds, self._capped) for key_queue in chain.drain()]
        self._rounds.clear()
        self._round_heap.clear()
        self._current_round = 0
        self._measure()
        for key_queue in self._key_queues.values():
            key_queue.spent = max(0, key_queue.spent - begin) + self._quantum
        for key_queue in key_queues:
            self._join(key_queue)

    @property
    def caps_keys(self) -> bool:
        """Tell whether there is a cap at all."""
        return self._cap < sys.maxsize

    @property
    def keys_waiting(self) -> int:
        """Return how many keys wait, the capped ones included."""
        return len(self._key_queues) - len(self._idle)

    @property
    def keys_capped(self) -> int:
        """Return how many keys wait for nothing but their own permits."""
        self._next_key_queue()  # parks those before it
        return len(self._capped)

    def deficit(self) -> int:
        """Return what all keys owe beyond the next round, in bytes; looks at every key."""
        begin = self._next_round_start()
        return sum(max(0, key_queue.spent - begin) for key_queue in self._key_queues.values())

    # The turns

    def _next_key_queue(self) -> KeyQueue | None:
        """Return the key whose turn it is, after moving those before it to where they belong by now.

        Each step ends a ring, parks a key, or moves one that has spent since; so all steps are paid for by
        what was joined, released, granted or grown before.
        """
        order, rounds = self._round_heap, self._rounds
        while order:
            round_ = rounds[order[0]]
            key_queue = round_.head
            if key_queue is None:
                del rounds[heapq.heappop(order)]
            elif key_queue.spent // self._quantum > round_.number:
                self._join(key_queue)
            elif key_queue.head is not None and self.at_cap(key_queue.key, key_queue.head.size):
                round_.remove(key_queue)
                self._capped.push(key_queue)
            else:
                return key_queue
        return None

    def _join(self, key_queue: KeyQueue) -> None:
        """Put a key that waits at the end of its round, which is not before the next."""
        if key_queue.queue is not None:
            key_queue.queue.remove(key_queue)
        key_queue.spent = max(key_queue.spent, self._next_round_start())
        number = key_queue.spent // self._quantum
        round_ = self._rounds.get(number)
        if round_ is None:
            if len(self._round_heap) > 2 * len(self._key_queues) + 8:
                self._drop_empty_rounds()
            round_ = self._rounds[number] = Round(number)
            heapq.heappush(self._round_heap, number)
        round_.push(key_queue)

    def _drop_empty_rounds(self) -> None:
        for number in [number for number, round_ in self._rounds.items() if round_.head is None]:
            del self._rounds[number]
        self._round_heap[:] = self._rounds
        heapq.heapify(self._round_heap)

    def _next_round_start(self) -> int:
        return (self._current_round + 1) * self._quantum

    def _joining_round(self, key_queue: KeyQueue | None) -> int:
        number = self._current_round + 1
        return number if key_queue is None else max(number, key_queue.spent // self._quantum)

    def at_cap(self, key: Hashable, n: int) -> bool:
        """Return whether `key` holds too much to be let in with `n` more."""
        held = self._ledger.held_by(key)
        return held > 0 and held + n > self._cap

    def _measure(self) -> None:
        limit = self._ledger.limit
        self._quantum = max(1, limit // QUANTA_PER_LIMIT)
        capped = limit > 0 and self._cap_percent < 100
        self._cap = limit * self._cap_percent // 100 if capped else sys.maxsize

    # Keys that come and go

    def _key_queue_of(self, key: Hashable) -> KeyQueue:
        key_queue = self._key_queues.get(key)
        if key_queue is None:
            key_queue = self._key_queues[key] = KeyQueue(self, key, self._on_cancel)
        elif key_queue.queue is self._idle:
            self._idle.remove(key_queue)
        return key_queue

    def on_removed(self, key_queue: KeyQueue, was_first: bool) -> None:
        """Follow up on one that left `share`: forget the key, or look at its next."""
        self._waiting -= 1
        if self._waiting == 0:
            assert key_queue.queue is not None, "one that waited stands in a chain"
            key_queue.queue.remove(key_queue)
            self._clear()
        elif key_queue.head is None:
            self._retire(key_queue)
        elif was_first and key_queue.queue is self._capped:
            self._join(key_queue)

    def _retire(self, key_queue: KeyQueue) -> None:
        """Keep a key with nobody waiting only for what it owes; what is less than its next turn is nothing.

        Beyond MAX_IDLE_DEBTORS the one looked at longest ago is forgiven: the bound is worth more than its debt.
        """
        if key_queue.queue is not None:
            key_queue.queue.remove(key_queue)
        if key_queue.spent <= self._next_round_start():
            del self._key_queues[key_queue.key]
            return
        self._idle.push(key_queue)
        if len(self._idle) > MAX_IDLE_DEBTORS:
            self._forgive_oldest()

    def _forgive_oldest(self) -> None:
        key_queue = self._idle.head
        assert key_queue is not None, "nobody is idle"
        self._idle.remove(key_queue)
        del self._key_queues[key_queue.key]

    def _drop_paid(self) -> None:
        """Look at two idle keys: each grant adds one at most, so those that have paid never are many."""
        for _ in range(min(2, len(self._idle))):
            key_queue = self._idle.head
            assert key_queue is not None, "nobody is idle"
            self._idle.remove(key_queue)
            if key_queue.spent > self._next_round_start():
                self._idle.push(key_queue)
            else:
                del self._key_queues[key_queue.key]

    def _clear(self) -> None:
        self._key_queues.clear()
        self._rounds.clear()
        self._round_heap.clear()
        self._current_round = 0
        self._idle.drain()
