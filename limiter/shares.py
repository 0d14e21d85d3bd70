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
from limiter.permit import Newcomer
from limiter.queue import Chain, WaiterQueue

__all__ = ["MAX_IDLE_DEBTORS", "QUANTA_PER_LIMIT", "Share", "Shares"]

QUANTA_PER_LIMIT = 1024
MAX_IDLE_DEBTORS = 4096
_by_arrival = attrgetter("arrival")


class Ring(Chain["Share"]):
    """The keys whose turn comes in one round, in the order of their turns."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Share(WaiterQueue[Newcomer]):
    """Those of one key that wait, and what the key has spent.

    It stands in one chain of `Shares`, which is its state: a ring, the parked, or the idle that still owe.
    """

    __slots__ = ("_shares", "key", "next", "previous", "queue", "spent")

    def __init__(self, shares: "Shares", key: Hashable, on_cancel: Callable[[Newcomer], None]) -> None:
        super().__init__(on_cancel)
        self._shares = shares
        self.key = key
        self.spent = 0
        self.queue: Chain[Share] | None = None
        self.previous: Share | None = None
        self.next: Share | None = None

    def remove(self, member: Newcomer) -> None:
        """Take one out, from any place, and give the key the state that follows from it."""
        was_first = member is self.head
        super().remove(member)
        self._shares.after_leaving(self, was_first)

    def insert_by_arrival(self, waiter: Newcomer) -> None:
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


class Shares:
    """Take the place of `WaiterQueue` for newcomers; the caller tells it of all that changes what a key holds.

    `cap_percent` of the limit is the most that a key may hold when a newcomer of it is let in, 100 is no cap; one
    larger than that is let in when its key holds nothing. Keys are kept alive while they wait or owe.
    """

    __slots__ = (
        "_arrivals",
        "_cap",
        "_cap_percent",
        "_idle",
        "_ledger",
        "_on_cancel",
        "_order",
        "_parked",
        "_quantum",
        "_rings",
        "_round",
        "_shares",
        "_waiting",
    )

    def __init__(self, ledger: Ledger, cap_percent: int, on_cancel: Callable[[Newcomer], None]) -> None:
        self._ledger = ledger
        self._on_cancel = on_cancel
        self._arrivals = 0
        self._waiting = 0
        self._round = 0  # of the last grant
        self._shares: dict[Hashable, Share] = {}
        self._rings: dict[int, Ring] = {}
        self._order: list[int] = []  # a heap of the rings' numbers, each of them once
        self._parked: Chain[Share] = Chain()
        self._idle: Chain[Share] = Chain()
        self._cap_percent = cap_percent
        self._measure()

    def __len__(self) -> int:
        return self._waiting

    # What WaiterQueue does

    @property
    def head(self) -> Newcomer | None:
        """Return who goes next, None if nobody waits but those whose cap keeps them out."""
        lead = self._lead()
        return None if lead is None else lead.head

    def push(self, waiter: Newcomer) -> None:
        """Put `waiter` at the end of its key; a key that did not wait takes its turn after all of this round."""
        share = self._share_of(waiter.key)
        self._arrivals += 1
        waiter.arrival = self._arrivals
        share.push(waiter)
        self._waiting += 1
        if share.queue is None:
            self._join(share)

    def remove(self, waiter: Newcomer) -> None:
        """Take `waiter` out, wherever it stands; it pays nothing."""
        assert waiter.queue is not None, "waiter stands in no queue"
        waiter.queue.remove(waiter)

    def drain(self) -> list[Newcomer]:
        """Take all out, in the order in which they came, and forget all debts."""
        waiters: list[Newcomer] = []
        for share in list(self._shares.values()):
            waiters.extend(share.drain())
        waiters.sort(key=_by_arrival)
        return waiters

    def __iter__(self) -> Iterator[Newcomer]:
        """Yield the first of each key, then the second of each; keys in the order of their turns, the parked last.

        An order to look at: how much each key may take in its turn is not weighed. Nothing may change meanwhile.
        """
        chains = (*(self._rings[number] for number in sorted(self._rings)), self._parked)
        waiters: Iterable[Newcomer | None] = (share.head for chain in chains for share in chain)
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
        share = self._shares.get(key)
        if (share is not None and share.head is not None) or self.at_cap(key, n):
            return False
        lead = self._lead()
        return lead is None or self._round_of_joining(share) < lead.spent // self._quantum

    def pay_at_once(self, key: Hashable, n: int) -> None:
        """Book `n` to a newcomer that was let in without queueing."""
        if self._lead() is None:
            return
        share = self._share_of(key)
        self._round = self._round_of_joining(share)
        share.spent = max(share.spent, self._round * self._quantum) + n
        self._rest(share)
        self._sweep()

    def take(self, waiter: Newcomer, n: int) -> None:
        """Take the head out and book `n` to its key; its round has come, and the rounds before are over."""
        share = waiter.queue
        assert isinstance(share, Share), "waiter stands in no queue"
        self._round = share.spent // self._quantum
        share.spent += n
        share.remove(waiter)
        self._sweep()

    def charge(self, key: Hashable, n: int) -> None:
        """Book growth to `key` as debt; `n < 0` gives back what was not used, but makes no credit.

        While nobody waits who could go, nothing is owed to anybody.
        """
        if self._lead() is None:
            return
        share = self._share_of(key)
        ring = share.queue
        if isinstance(ring, Ring):
            floor = min(ring.number, self._round + 1) * self._quantum
            share.spent = max(share.spent + n, floor)
            if share.spent // self._quantum < ring.number:
                self._join(share)
            return
        share.spent = max(share.spent, self._next_round_begins()) + n
        if share.head is None:
            self._rest(share)

    def behind(self, key: Hashable) -> bool:
        """Return whether `key` owes so much that its turn comes in a later round than the head's."""
        share, lead = self._shares.get(key), self._lead()
        return share is not None and lead is not None and share.spent // self._quantum > lead.spent // self._quantum

    def freed(self, key: Hashable) -> None:
        """Look at a key again that holds less than before; its cap may let it in now."""
        share = self._shares.get(key)
        if share is not None and share.queue is self._parked:
            self._join(share)

    def move(self, waiter: Newcomer, key: Hashable) -> None:
        """Give a waiter another key; it stands there where it would stand had it come with that key.

        The search for that place is at worst linear in those of the new key that wait.
        """
        self.remove(waiter)
        waiter.key = key
        share = self._share_of(key)
        share.insert_by_arrival(waiter)
        self._waiting += 1
        if share.queue is None or (share.queue is self._parked and share.head is waiter):
            self._join(share)

    # What an operator changes, and looks at

    def set_cap(self, cap_percent: int) -> None:
        """Change the cap live; nothing is taken back from a key that holds more."""
        self._cap_percent = cap_percent
        self.limit_changed()

    def limit_changed(self) -> None:
        """Measure quantum and cap anew; order and debts, in bytes, stay as they are."""
        begin = self._next_round_begins()
        rings = [self._rings[number] for number in sorted(self._rings)]
        shares = [share for chain in (*rings, self._parked) for share in chain.drain()]
        self._rings.clear()
        self._order.clear()
        self._round = 0
        self._measure()
        for share in self._shares.values():
            share.spent = max(0, share.spent - begin) + self._quantum
        for share in shares:
            self._join(share)

    @property
    def caps_keys(self) -> bool:
        """Tell whether there is a cap at all."""
        return self._cap < sys.maxsize

    @property
    def keys_waiting(self) -> int:
        """Return how many keys wait, the capped ones included."""
        return len(self._shares) - len(self._idle)

    @property
    def keys_capped(self) -> int:
        """Return how many keys wait for nothing but their own permits."""
        self._lead()  # parks those before it
        return len(self._parked)

    def debt(self) -> int:
        """Return what all keys owe beyond the next round, in bytes; looks at every key."""
        begin = self._next_round_begins()
        return sum(max(0, share.spent - begin) for share in self._shares.values())

    # The turns

    def _lead(self) -> Share | None:
        """Return the key whose turn it is, after moving those before it to where they belong by now.

        Each step ends a ring, parks a key, or moves one that has spent since; so all steps are paid for by
        what was joined, released, granted or grown before.
        """
        order, rings = self._order, self._rings
        while order:
            ring = rings[order[0]]
            share = ring.head
            if share is None:
                del rings[heapq.heappop(order)]
            elif share.spent // self._quantum > ring.number:
                self._join(share)
            elif share.head is not None and self.at_cap(share.key, share.head.size):
                ring.remove(share)
                self._parked.push(share)
            else:
                return share
        return None

    def _join(self, share: Share) -> None:
        """Put a key that waits at the end of its round, which is not before the next."""
        if share.queue is not None:
            share.queue.remove(share)
        share.spent = max(share.spent, self._next_round_begins())
        number = share.spent // self._quantum
        ring = self._rings.get(number)
        if ring is None:
            if len(self._order) > 2 * len(self._shares) + 8:
                self._drop_empty_rings()
            ring = self._rings[number] = Ring(number)
            heapq.heappush(self._order, number)
        ring.push(share)

    def _drop_empty_rings(self) -> None:
        for number in [number for number, ring in self._rings.items() if ring.head is None]:
            del self._rings[number]
        self._order[:] = self._rings
        heapq.heapify(self._order)

    def _next_round_begins(self) -> int:
        return (self._round + 1) * self._quantum

    def _round_of_joining(self, share: Share | None) -> int:
        number = self._round + 1
        return number if share is None else max(number, share.spent // self._quantum)

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

    def _share_of(self, key: Hashable) -> Share:
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = Share(self, key, self._on_cancel)
        elif share.queue is self._idle:
            self._idle.remove(share)
        return share

    def after_leaving(self, share: Share, was_first: bool) -> None:
        """Follow up on one that left `share`: forget the key, or look at its next."""
        self._waiting -= 1
        if self._waiting == 0:
            assert share.queue is not None, "one that waited stands in a chain"
            share.queue.remove(share)
            self._forget_all()
        elif share.head is None:
            self._rest(share)
        elif was_first and share.queue is self._parked:
            self._join(share)

    def _rest(self, share: Share) -> None:
        """Keep a key with nobody waiting only for what it owes; what is less than its next turn is nothing.

        Beyond MAX_IDLE_DEBTORS the one looked at longest ago is forgiven: the bound is worth more than its debt.
        """
        if share.queue is not None:
            share.queue.remove(share)
        if share.spent <= self._next_round_begins():
            del self._shares[share.key]
            return
        self._idle.push(share)
        if len(self._idle) > MAX_IDLE_DEBTORS:
            self._forget_idle()

    def _forget_idle(self) -> None:
        share = self._idle.head
        assert share is not None, "nobody is idle"
        self._idle.remove(share)
        del self._shares[share.key]

    def _sweep(self) -> None:
        """Look at two idle keys: each grant adds one at most, so those that have paid never are many."""
        for _ in range(min(2, len(self._idle))):
            share = self._idle.head
            assert share is not None, "nobody is idle"
            self._idle.remove(share)
            if share.spent > self._next_round_begins():
                self._idle.push(share)
            else:
                del self._shares[share.key]

    def _forget_all(self) -> None:
        self._shares.clear()
        self._rings.clear()
        self._order.clear()
        self._round = 0
        self._idle.drain()
