"""A fair queue of acquires by key: deficit round robin over bytes, first in first out inside a key.

Rules (docs/adr/0007):
- Each waiting key gets a quantum a round. A key is served while it has credit left; its credit may go below 0, and the
  key pays this deficit by sitting out rounds. Rounds that no key can use are skipped at the next grant, so memory never
  idles for a deficit.
- The key whose turn it is holds up the others while its first request does not fit. A key at its cap holds up no other
  key: the key is set aside until one of its own permits shrinks or ends.
- Keys of a site (`limiter.sites`) have the turns and the credit of one key. Inside it they take turns by requests.
- A part of the limit may be kept (`Ledger.kept_of`): only a key whose site holds nothing is granted that. Where no more
  than that is free, all other keys go outside: into one line, whose first holds up the others and no such newcomer.
- Growth adds to its key's deficit while an acquire waits that could be granted. With no waiter left, all deficits end.

Credit is one number per key, `spent`, on a scale common to all keys: round r is the quantum that begins at
r * quantum, so a key's round is `spent // quantum`, and skipping rounds costs nothing.
The module books nothing and grants nothing: it decides which waiter is next.
"""

import heapq
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from operator import attrgetter

from limiter.ledger import Ledger
from limiter.permit import AcquireWaiter
from limiter.queue import LinkedList, WaiterQueue
from limiter.sites import SiteKey, site_of

__all__ = ["MAX_IDLE_DEBTORS", "QUANTA_PER_LIMIT", "FairQueue", "KeyQueue"]

QUANTA_PER_LIMIT = 1024
MAX_IDLE_DEBTORS = 4096
_by_arrival = attrgetter("arrival")


class Round(LinkedList["KeyQueue"]):
    """The keys whose turn is in one round, in the order of their turns."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class _SiteTurns:
    """The places of a site's waiters in their list: in each turn, every key of the site that waits has one waiter."""

    __slots__ = ("_count_of", "_last_in", "_turn_of")

    def __init__(self) -> None:
        # By turn: its last waiter in the list. By key: the turn of its newest waiter, and how many wait.
        self._last_in: dict[int, AcquireWaiter] = {}
        self._turn_of: dict[Hashable, int] = {}
        self._count_of: dict[Hashable, int] = {}

    def enter(self, waiter: AcquireWaiter, head: AcquireWaiter | None) -> AcquireWaiter | None:
        """Return the waiter that a newcomer stands behind in its turn, None if the newcomer is the first."""
        current = 0 if head is None else head.turn
        waiter.turn = turn = max(current, self._turn_of.get(waiter.key, -1) + 1)
        # Turns may be empty, where waiters have left. The head's turn has the head at least.
        before = self._last_in.get(turn)
        while before is None and turn > current:
            turn -= 1
            before = self._last_in.get(turn)
        self._last_in[waiter.turn] = waiter
        self._turn_of[waiter.key] = waiter.turn
        self._count_of[waiter.key] = self._count_of.get(waiter.key, 0) + 1
        return before

    def leave(self, waiter: AcquireWaiter) -> None:
        """Forget a waiter that is still in the list."""
        if self._last_in[waiter.turn] is waiter:
            before = waiter.previous
            if before is not None and before.turn == waiter.turn:
                self._last_in[waiter.turn] = before
            else:
                del self._last_in[waiter.turn]
        self._count_of[waiter.key] -= 1
        if not self._count_of[waiter.key]:
            del self._count_of[waiter.key], self._turn_of[waiter.key]


class KeyQueue(WaiterQueue[AcquireWaiter]):
    """The waiters of one key or site, and how much it has spent.

    `queue` is the list of the fair queue that holds this key: a round, the keys outside, the capped keys, or the idle
    keys in deficit.
    """

    __slots__ = ("_fair_queue", "_turns", "key", "next", "previous", "queue", "spent")

    def __init__(self, fair_queue: "FairQueue", key: Hashable, on_cancel: Callable[[AcquireWaiter], None]) -> None:
        super().__init__(on_cancel)
        self._fair_queue = fair_queue
        self.key = key
        self.spent = 0
        self.queue: LinkedList[KeyQueue] | None = None
        self.previous: KeyQueue | None = None
        self.next: KeyQueue | None = None
        self._turns: _SiteTurns | None = None

    def enter(self, waiter: AcquireWaiter) -> None:
        """Append a waiter; one of a key of a site stands where its key's turn is."""
        if not isinstance(waiter.key, SiteKey):
            self.push(waiter)
            return
        if self._turns is None:
            self._turns = _SiteTurns()
        self.insert(waiter, self._turns.enter(waiter, self.head))

    def remove(self, member: AcquireWaiter) -> None:
        """Remove a waiter from any place, and move the key to the list where it belongs now."""
        was_first = member is self.head
        if self._turns is not None and isinstance(member.key, SiteKey):
            self._turns.leave(member)
        super().remove(member)
        self._fair_queue.on_removed(self, was_first)


class FairQueue:
    """A queue of acquires that takes the place of `WaiterQueue`; the caller reports all changes of what a key holds.

    After a grant, a key may hold at most `cap_percent` of the limit (100: no cap); a larger acquire is granted when its
    key holds nothing. Keys are kept while they wait or have a deficit.
    """

    __slots__ = (
        "_arrivals", "_cap", "_cap_percent", "_capped", "_current_round", "_idle", "_key_queues", "_ledger",
        "_on_cancel", "_open_limit", "_outside", "_quantum", "_round_heap", "_rounds", "_waiting",
    )  # fmt: skip

    def __init__(self, ledger: Ledger, cap_percent: int, on_cancel: Callable[[AcquireWaiter], None]) -> None:
        self._ledger = ledger
        self._on_cancel = on_cancel
        self._arrivals = 0
        self._waiting = 0
        self._current_round = 0  # the round of the last grant
        self._key_queues: dict[Hashable, KeyQueue] = {}
        self._rounds: dict[int, Round] = {}
        self._round_heap: list[int] = []  # a heap of the numbers of `_rounds`, each number once
        self._capped: LinkedList[KeyQueue] = LinkedList()
        self._outside: LinkedList[KeyQueue] = LinkedList()  # keys that hold something, and wait for more than is kept
        self._idle: LinkedList[KeyQueue] = LinkedList()
        self._cap_percent = cap_percent
        self._measure()

    def __len__(self) -> int:
        return self._waiting

    # The interface of WaiterQueue

    @property
    def head(self) -> AcquireWaiter | None:
        """Return the waiter that is next, None if every waiting key is at its cap."""
        leader = self._next_key_queue()
        return None if leader is None else leader.head

    def push(self, waiter: AcquireWaiter) -> None:
        """Append `waiter` to its key; a key that did not wait gets its turn after all keys of this round."""
        key_queue = self._key_queue_of(waiter.key)
        self._arrivals += 1
        waiter.arrival = self._arrivals
        key_queue.enter(waiter)
        self._waiting += 1
        if key_queue.queue is None:
            self._join(key_queue)

    def remove(self, waiter: AcquireWaiter) -> None:
        """Remove `waiter` from any place; its key spends nothing."""
        assert waiter.queue is not None, "waiter is not queued"
        waiter.queue.remove(waiter)

    def drain(self) -> list[AcquireWaiter]:
        """Remove all waiters, return them in the order of arrival, and drop all deficits."""
        waiters: list[AcquireWaiter] = []
        for key_queue in list(self._key_queues.values()):
            waiters.extend(key_queue.drain())
        waiters.sort(key=_by_arrival)
        return waiters

    def __iter__(self) -> Iterator[AcquireWaiter]:
        """Yield the first waiter of each key, then the second; keys in the order of their turns, those set aside last.

        The order ignores how much each key may take in its turn. The queue must not change meanwhile.
        """
        chains = (*(self._rounds[number] for number in sorted(self._rounds)), self._outside, self._capped)
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

    # Before and after a grant

    def admits(self, key: Hashable, n: int) -> bool:
        """Return whether an acquire that is not queued goes before all waiters, if it fits."""
        key_queue = self._key_queues.get(site_of(key))
        if (key_queue is not None and key_queue.head is not None) or self.at_cap(key, n) or self._goes_outside(key, n):
            return False
        leader = self._next_key_queue()
        return leader is None or self._joining_round(key_queue) < leader.spent // self._quantum

    def spend_unqueued(self, key: Hashable, n: int) -> None:
        """Add `n` to what `key` has spent, for an acquire that was granted without queueing."""
        if self._next_key_queue() is None:
            return
        key_queue = self._key_queue_of(key)
        self._current_round = self._joining_round(key_queue)
        key_queue.spent = max(key_queue.spent, self._current_round * self._quantum) + n
        self._retire(key_queue)
        self._drop_paid()

    def grant(self, waiter: AcquireWaiter, n: int) -> None:
        """Remove the head and add `n` to what its key has spent; earlier rounds are over."""
        key_queue = waiter.queue
        assert isinstance(key_queue, KeyQueue), "waiter is not queued"
        self._current_round = key_queue.spent // self._quantum
        key_queue.spent += n
        key_queue.remove(waiter)
        self._drop_paid()

    def spend(self, key: Hashable, n: int) -> None:
        """Add growth to what `key` has spent; `n < 0` takes unused growth back, but makes no credit.

        Nothing is counted while no waiter could be granted: no other key is delayed then.
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
        """Return whether the deficit of `key` puts its turn in a later round than the head's."""
        key_queue, leader = self._key_queues.get(site_of(key)), self._next_key_queue()
        return (
            key_queue is not None
            and leader is not None
            and key_queue.spent // self._quantum > leader.spent // self._quantum
        )

    def on_freed(self, key: Hashable) -> None:
        """Put a key that was set aside back into a round: its own cap, or what others hold, keeps it out no more."""
        key_queue = self._key_queues.get(site_of(key))
        if key_queue is None or not self._is_aside(key_queue):
            return
        # A key outside that still holds something waits for its turn there.
        if key_queue.queue is self._capped or not self._ledger.held_by_site(key):
            self._join(key_queue)

    # Settings and readings

    def set_cap(self, cap_percent: int) -> None:
        """Change the cap; a key that holds more keeps its permits."""
        self._cap_percent = cap_percent
        self.limit_changed()

    def limit_changed(self) -> None:
        """Compute quantum and cap again; the order, and the deficits in bytes, stay the same."""
        begin = self._next_round_start()
        rounds = [self._rounds[number] for number in sorted(self._rounds)]
        chains = (*rounds, self._outside, self._capped)
        key_queues = [key_queue for chain in chains for key_queue in chain.drain()]
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
        """Return whether keys are capped."""
        return self._cap < sys.maxsize

    @property
    def keys_waiting(self) -> int:
        """Return how many keys wait, including capped keys."""
        return len(self._key_queues) - len(self._idle)

    @property
    def keys_capped(self) -> int:
        """Return how many keys wait only for their own permits."""
        self._next_key_queue()  # sets capped keys aside
        return len(self._capped)

    def is_capped(self, key: Hashable) -> bool:
        """Return whether `key` waits only for its own permits."""
        self._next_key_queue()  # sets capped keys aside
        key_queue = self._key_queues.get(site_of(key))
        return key_queue is not None and key_queue.queue is self._capped

    def deficit(self) -> int:
        """Return the deficit of all keys beyond the next round, in bytes; linear in the number of keys."""
        begin = self._next_round_start()
        return sum(max(0, key_queue.spent - begin) for key_queue in self._key_queues.values())

    # Rounds

    def _next_key_queue(self) -> KeyQueue | None:
        """Return the key whose turn it is, after moving the keys before it to the lists where they belong now.

        Each step ends a round, sets a key aside, or moves a key that has spent since; so the steps are amortized over
        earlier joins, releases, grants and growth.
        """
        order, rounds = self._round_heap, self._rounds
        while order:
            round_ = rounds[order[0]]
            key_queue = round_.head
            if key_queue is None:
                del rounds[heapq.heappop(order)]
            elif key_queue.spent // self._quantum > round_.number:
                self._join(key_queue)
            elif key_queue.head is not None and self.at_cap(key_queue.head.key, key_queue.head.size):
                round_.remove(key_queue)
                self._capped.push(key_queue)
            elif key_queue.head is not None and self._goes_outside(key_queue.head.key, key_queue.head.size):
                round_.remove(key_queue)
                self._outside.push(key_queue)
            else:
                return key_queue
        return self._first_outside()

    def _first_outside(self) -> KeyQueue | None:
        """Return the first key outside if more than the kept part is free for it."""
        while (first := self._outside.head) is not None and (waiter := first.head) is not None:
            if self._takes_of_kept(waiter.key, waiter.size):
                break
            if not self.at_cap(waiter.key, waiter.size):
                first.spent = max(first.spent, self._next_round_start())
                return first
            self._outside.remove(first)
            self._capped.push(first)
        return None

    def _join(self, key_queue: KeyQueue) -> None:
        """Append a waiting key to its round, which is the next round or a later one."""
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
        """Return whether the cap forbids `key` an acquire of `n` more."""
        held = self._ledger.held_by(key)
        return held > 0 and held + n > self._cap

    def _takes_of_kept(self, key: Hashable, n: int) -> bool:
        """Return whether `n` more for `key` would take of the part that is kept for others."""
        return self._ledger.held + n > self._open_limit and self._ledger.held_by_site(key) > 0

    def _goes_outside(self, key: Hashable, n: int) -> bool:
        if self._outside.head is not None:
            return self._ledger.held_by_site(key) > 0
        return self._takes_of_kept(key, n)

    def _is_aside(self, key_queue: KeyQueue) -> bool:
        return key_queue.queue is self._capped or key_queue.queue is self._outside

    def _measure(self) -> None:
        limit = self._ledger.limit
        self._quantum = max(1, limit // QUANTA_PER_LIMIT)
        capped = limit > 0 and self._cap_percent < 100
        self._cap = limit * self._cap_percent // 100 if capped else sys.maxsize
        self._open_limit = self._ledger.open_limit

    # Keys

    def _key_queue_of(self, key: Hashable) -> KeyQueue:
        key = site_of(key)
        key_queue = self._key_queues.get(key)
        if key_queue is None:
            key_queue = self._key_queues[key] = KeyQueue(self, key, self._on_cancel)
        elif key_queue.queue is self._idle:
            self._idle.remove(key_queue)
        return key_queue

    def on_removed(self, key_queue: KeyQueue, was_first: bool) -> None:
        """Drop a key whose last waiter was removed, or put a key set aside back into a round with its new head."""
        self._waiting -= 1
        if self._waiting == 0:
            assert key_queue.queue is not None, "a key with a waiter is in a list"
            key_queue.queue.remove(key_queue)
            self._clear()
        elif key_queue.head is None:
            self._retire(key_queue)
        elif was_first and self._is_aside(key_queue):
            self._join(key_queue)

    def _retire(self, key_queue: KeyQueue) -> None:
        """Keep a key without waiters only if its deficit reaches beyond the next round.

        Beyond MAX_IDLE_DEBTORS the key looked at longest ago is dropped: the bound matters more than its deficit.
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
        assert key_queue is not None, "no key is idle"
        self._idle.remove(key_queue)
        del self._key_queues[key_queue.key]

    def _drop_paid(self) -> None:
        """Look at two idle keys and drop paid ones: each grant adds at most one, so paid keys are never many."""
        for _ in range(min(2, len(self._idle))):
            key_queue = self._idle.head
            assert key_queue is not None, "no key is idle"
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
