"""A line in which keys take turns: those of the first level of a path, and below each of them those of the next.

Rules:
- At each level deficit round robin by cost, which is told when an item is served. A key has a quantum a round; it is
  served while any of it is left, and sits out the rounds that it has used beyond. Rounds that nobody can use are
  skipped. A key that begins to wait has its first turn behind all others, so a light key waits for one turn of each.
  The items of a path are first in, first out.
- A path may be charged without an item (`spend`), and get that back: no credit, and nothing of the turn that it has. A
  charge counts where somebody waits for a turn, and until nobody waits there: else it delays nobody.
- Only a path with items costs memory, or one that owes: of those `MOST_DEBTORS`, then the one looked at longest ago is
  forgiven.
- A path that is parked is passed over, and holds up nobody else.
- Paths may be put in band 1: they take turns with each other, and have one turn in four while others wait.

No path may be the beginning of another one; a line whose only path is `()` is first in, first out. Who asks for the
next item books and grants: nothing here does. All but `longest`, `keys` and a walk through all is
O(depth), amortized; no call makes a tuple.
"""

import heapq
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

__all__ = ["MOST_DEBTORS", "Entry", "FairLine", "Path"]

MOST_DEBTORS: Final = 4096
# Debtors that are looked at with each turn, which makes one of each level of its path at most.
LOOKS: Final = 8
# While keys of band 0 wait, those of band 1 have one turn after so many of theirs.
BEHIND_AFTER: Final = 3

T = TypeVar("T")
Path = tuple[Hashable, ...]


class Linked(Protocol):
    """What may be in a list: `queue` is the list that it is in, or None; its links belong to that list."""

    queue: Any
    previous: Any
    next: Any


L = TypeVar("L", bound=Linked)


class _LinkedList(Generic[L]):
    """Members in order, of which any can leave in constant time."""

    __slots__ = ("head", "last")

    def __init__(self) -> None:
        self.head: L | None = None
        self.last: L | None = None

    def __iter__(self) -> Iterator[L]:
        member = self.head
        while member is not None:
            yield member
            member = member.next

    def push(self, member: L) -> None:
        """Append a member."""
        last = self.last
        member.queue = self
        member.previous = last
        if last is None:
            self.head = member
        else:
            last.next = member
        self.last = member

    def remove(self, member: L) -> None:
        """Remove a member from any place."""
        before, after = member.previous, member.next
        if before is None:
            self.head = after
        else:
            before.next = after
        if after is None:
            self.last = before
        else:
            after.previous = before
        member.queue = member.previous = member.next = None


class Entry(Generic[T]):
    """An item that has no links of its own."""

    __slots__ = ("item", "next", "previous", "queue")

    def __init__(self, item: T) -> None:
        self.item = item
        self.queue: Any = None
        self.previous: Any = None
        self.next: Any = None


class _Key(_LinkedList[L]):
    """A key at some level: the list of the items that wait at it, or else the keys below it."""

    __slots__ = ("band", "below", "level", "name", "next", "parked", "previous", "queue", "spent", "waiting")

    def __init__(self, name: Hashable, level: "_Level[L] | None") -> None:
        super().__init__()
        self.name = name
        self.level = level
        self.below: _Level[L] | None = None
        # What it has spent, on a scale that is common to all keys of its level: round r begins at r quanta.
        self.spent: float = 0
        # The items that wait at it and below.
        self.waiting = 0
        self.parked = False
        self.band = 0
        # The round that it has its turn in, and its neighbours there.
        self.queue: _LinkedList[_Key[L]] | None = None
        self.previous: _Key[L] | None = None
        self.next: _Key[L] | None = None

    def has_next(self) -> bool:
        """Return whether it has an item that may be next."""
        if self.parked:
            return False
        return self.head is not None or (self.below is not None and self.below.first() is not None)


class _Ring(Generic[L]):
    """Keys that have a turn, in rounds."""

    __slots__ = ("_order", "_quantum", "_rounds", "start")

    def __init__(self, quantum: float) -> None:
        self._quantum = quantum
        # The beginning of the round behind that of the last turn.
        self.start = quantum
        # The rounds by number, and a heap of these numbers, each once.
        self._rounds: dict[int, _LinkedList[_Key[L]]] = {}
        self._order: list[int] = []

    def first(self) -> _Key[L] | None:
        """Return the key whose turn it is."""
        order = self._order
        while order:
            if (key := self._rounds[order[0]].head) is not None:
                return key
            del self._rounds[heapq.heappop(order)]
        return None

    def __iter__(self) -> Iterator[_Key[L]]:
        """Yield the keys in the order of their turns."""
        for number in sorted(self._rounds):
            yield from self._rounds[number]

    def join(self, key: _Key[L], keys: int) -> None:
        """Append a key to the next round, or to a later one if it owes; its level has `keys` keys."""
        if key.spent < self.start:
            key.spent = self.start
        number = int(key.spent // self._quantum)
        round_ = self._rounds.get(number)
        if round_ is None:
            if len(self._order) > 2 * keys + 8:
                self._drop_empty_rounds()
            round_ = self._rounds[number] = _LinkedList()
            heapq.heappush(self._order, number)
        round_.push(key)

    def begin_round(self) -> None:
        """Begin the round of the key whose turn it is; those before are over."""
        self.start = (self._order[0] + 1) * self._quantum

    def _drop_empty_rounds(self) -> None:
        self._rounds = {number: round_ for number, round_ in self._rounds.items() if round_.head is not None}
        self._order = sorted(self._rounds)


class _Level(Generic[L]):
    """The keys below one key; those of each band have turns of their own."""

    __slots__ = ("_quantum", "_rings", "_turns", "keys", "owner")

    def __init__(self, owner: _Key[L], quantum: float) -> None:
        self.owner = owner
        self._quantum = quantum
        self.keys: dict[Hashable, _Key[L]] = {}
        self._rings: list[_Ring[L]] = [_Ring(quantum)]
        # The turns of band 0 that band 1 has waited for since its own.
        self._turns = 0

    def start(self, key: _Key[L]) -> float:
        """Return the beginning of the next round of a key's band."""
        return self._rings[key.band].start

    def first(self) -> _Key[L] | None:
        """Return the key whose turn it is."""
        first = self._rings[0].first()
        if len(self._rings) > 1 and (first is None or self._turns == BEHIND_AFTER):
            behind = self._rings[1].first()
            return first if behind is None else behind
        return first

    def join(self, key: _Key[L]) -> None:
        """Give a key its turn."""
        self._rings[key.band].join(key, len(self.keys))

    def move(self, key: _Key[L]) -> None:
        """Give a key another turn instead of the one that it has."""
        assert key.queue is not None, "the key has a turn"
        key.queue.remove(key)
        self.join(key)

    def charge(self, key: _Key[L], cost: float) -> None:
        """Charge the key whose turn it is."""
        if len(self._rings) > 1 and self._rings[1 - key.band].first() is not None:
            self._turns = 0 if key.band else self._turns + 1
        self._rings[key.band].begin_round()
        key.spent += cost

    def first_of_each(self) -> list[L]:
        """Return the first member of each path: in the order of turns, and then of those that have none."""
        turns = [key for ring in self._rings for key in ring]
        turns += [key for key in self.keys.values() if key.queue is None]
        found: list[L] = []
        for key in turns:
            if key.head is not None:
                found.append(key.head)
            if key.below is not None:
                found += key.below.first_of_each()
        return found

    def change_band(self, key: _Key[L], band: int) -> None:
        """Give a key turns with those of a band; it owes what it owed."""
        if band == len(self._rings):
            self._rings.append(_Ring(self._quantum))
        key.spent += self._rings[band].start - self.start(key)
        key.band = band
        if key.queue is not None:
            self.move(key)


class FairLine(Generic[L]):
    """What waits in turns by path; `quantum`, a whole number, is what a key uses in a turn; costs are above 0.

    To iterate is to get the first of each path in the order of the turns, those without a turn last; then the
    second of each, and so on. Nobody may come or go meanwhile.
    """

    __slots__ = ("_debtors", "_root", "quantum")

    def __init__(self, quantum: float = 1) -> None:
        self.quantum = quantum
        self._root: _Key[L] = _Key(None, None)
        # Keys that owe and have no items. A plain dict would look through all keys removed from its front.
        self._debtors: OrderedDict[_Key[L], None] = OrderedDict()

    def __len__(self) -> int:
        return self._root.waiting

    def __iter__(self) -> Iterator[L]:
        root = self._root
        members: list[L] = [] if root.head is None else [root.head]
        members += [] if root.below is None else root.below.first_of_each()
        while members:
            yield from members
            members = [member.next for member in members if member.next is not None]

    def push(self, path: Path, member: L) -> L:
        """Append a member to its path, and return it."""
        assert member.queue is None, "it is in no line"
        key = self._root
        key.waiting += 1
        for name in path:
            level = key.below
            if level is None:
                level = key.below = _Level(key, self.quantum)
            found = level.keys.get(name)
            if found is None:
                found = level.keys[name] = _Key(name, level)
            else:
                if not found.waiting:
                    self._debtors.pop(found, None)
                # `longest` takes who grew last.
                level.keys[name] = level.keys.pop(name)
            key = found
            key.waiting += 1
        key.push(member)
        self._wake(key)
        return member

    def head(self) -> L | None:
        """Return the member that is next; None if all that wait are parked, or nobody waits."""
        key = self._root
        while key.below is not None and (first := key.below.first()) is not None:
            key = first
        return key.head

    def pop(self, cost: float = 1) -> L:
        """Remove and return the member that is next, and charge its path; there must be one."""
        head = self.head()
        assert head is not None, "a member may be next"
        self.remove(head, cost)
        return head

    def skip(self) -> None:
        """Charge the path whose turn it is for a member, if there is one, and leave that in the line."""
        if (head := self.head()) is not None:
            self._climb(head.queue, cost=1)

    def remove(self, member: L, cost: float = 0) -> bool:
        """Remove a member from any place; return False if it does not wait. Who is next may have a turn's cost."""
        key: _Key[L] | None = member.queue
        if key is None:
            return False
        key.remove(member)
        self._climb(key, left=1, cost=cost)
        return True

    def waiting(self, path: Path) -> int:
        """Return how many items wait at a path, or at those that it begins."""
        key = self._find(path)
        return 0 if key is None else key.waiting

    def set_parked(self, path: Path, *, parked: bool) -> None:
        """Pass over the items of a path, or no more; until none is left, or not at all if nothing waits there."""
        key = self._find(path)
        if key is not None and key.waiting:
            key.parked = parked
            self._climb(key)
            self._wake(key)

    def set_band(self, path: Path, band: int) -> None:
        """Let a path take turns with those of a band, 0 or 1, until none of its items is left."""
        key = self._find(path)
        if key is not None and key.waiting and key.level is not None and key.band != band:
            key.level.change_band(key, band)

    def spend(self, path: Path, cost: float) -> None:
        """Charge a path without an item; a cost below 0 takes back what was charged so."""
        key = self._root
        for name in path:
            level = key.below
            if level is None or level.first() is None:
                return
            found = level.keys.get(name)
            if found is None:
                found = level.keys[name] = _Key(name, level)
            key = found
            before, start = key.spent, level.start(key)
            if key.queue is None:
                key.spent = max(before, start)
            key.spent = max(key.spent + cost, min(key.spent, start))
            if not key.waiting:
                self._keep_or_drop(key)
            elif key.queue is not None and before != key.spent >= start:
                level.move(key)

    def is_behind(self, path: Path) -> bool:
        """Return whether the first key of a path owes so much that its turn is in a later round than the next one."""
        level = self._root.below
        key = None if level is None else level.keys.get(path[0])
        first = None if level is None else level.first()
        return key is not None and first is not None and key.spent // self.quantum > first.spent // self.quantum

    def keys(self) -> tuple[int, float]:
        """Return how many keys of the first level have items, and what all keys there owe beyond their next turn."""
        level = self._root.below
        keys = [] if level is None else [(key, max(0, key.spent - level.start(key))) for key in level.keys.values()]
        return sum(key.waiting > 0 for key, _ in keys), sum(owed for _, owed in keys)

    def longest(self) -> L | None:
        """Return the last member of the path with most: of the key with most at the first level, and so on below it.

        Of several such keys it is one of band 1, or else the one that grew last: who comes to a line that is full is
        pushed, and then this one goes, which may be the newcomer's. Linear in the keys of each level on the way.
        """
        key = self._root
        while key.below is not None:
            key = max(reversed(key.below.keys.values()), key=lambda each: (each.waiting, each.band))
        return key.last

    def _find(self, path: Path) -> _Key[L] | None:
        key: _Key[L] | None = self._root
        for name in path:
            key = key.below.keys.get(name) if key is not None and key.below is not None else None
        return key

    def _wake(self, key: _Key[L]) -> None:
        """Give turns to a key that has something now, and to those above it."""
        while key.level is not None and key.queue is None and key.has_next():
            key.level.join(key)
            key = key.level.owner

    def _climb(self, key: _Key[L], left: int = 0, cost: float = 0) -> None:
        """Put a key and those above it where they belong now: in a round, aside, among those that owe, or nowhere.

        `left` items have left it; `cost` is that of its turn, if it had one.
        """
        while True:
            key.waiting -= left
            if not key.waiting:
                self._end_debts_below(key)
            level = key.level
            if level is None:
                break
            if cost:
                level.charge(key, cost)
            if key.queue is not None:
                if not key.has_next():
                    key.queue.remove(key)
                elif cost and key.spent >= level.start(key):
                    level.move(key)
            if not key.waiting:
                self._keep_or_drop(key)
            key = level.owner
        # A turn makes few debtors: looking at some more, those that have paid are never many.
        for _ in range(min(LOOKS, len(self._debtors)) if cost else 0):
            debtor = next(iter(self._debtors))
            self._debtors.move_to_end(debtor)
            self._keep_or_drop(debtor)

    def _end_debts_below(self, key: _Key[L]) -> None:
        """End the debts of keys below one where nobody waits."""
        if key.below is not None:
            for debtor in key.below.keys.values():
                del self._debtors[debtor]
            # No circle of references is left.
            key.below.keys.clear()
            key.below = None

    def _keep_or_drop(self, key: _Key[L]) -> None:
        """Remember a key without items only while it owes."""
        key.parked = False
        if key.level is not None and key.band:
            key.level.change_band(key, 0)
        if key.level is None or key.spent <= key.level.start(key):
            self._forget(key)
            return
        self._debtors[key] = None
        if len(self._debtors) > MOST_DEBTORS:
            self._forget(next(iter(self._debtors)))

    def _forget(self, key: _Key[L]) -> None:
        self._debtors.pop(key, None)
        if key.level is not None:
            del key.level.keys[key.name]
