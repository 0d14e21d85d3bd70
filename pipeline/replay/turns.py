"""The order of newcomers whose keys go in turns, as the reference sees it: deficit round robin by bytes.

Rules, those of docs/adr/0007: what a key has spent is a place on a scale common to all, whose rounds are a quantum
long; a key stands in the ring of its round and goes when all before it have gone or had to give way. A key at its cap
is parked until one of its own permits shrinks or ends. Who owes is remembered while anybody waits.
"""

import heapq
import sys

from pipeline.replay.lines import InOrder, Line, Newcomer

__all__ = ["MOST_IDLE_DEBTORS", "QUANTA_PER_LIMIT", "Turns"]

QUANTA_PER_LIMIT = 1024
MOST_IDLE_DEBTORS = 4096


class _Share:
    """The newcomers of one key, what it has spent, and where it stands: `ring` is the round, if in one."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.spent = 0
        self.waiting: list[Newcomer] = []
        self.ring: int | None = None
        self.place = 0  # in the ring, by when it was put there
        self.parked = False


class Turns(InOrder):
    """Who goes next, by what the keys have spent."""

    def __init__(self, line: Line, cap_percent: int) -> None:
        super().__init__()
        self._line = line
        self._quantum = max(1, line.limit // QUANTA_PER_LIMIT)
        capped = line.limit > 0 and cap_percent < 100
        self._cap = line.limit * cap_percent // 100 if capped else sys.maxsize
        self._count = 0
        self._arrivals = 0
        self._places = 0
        self._round = 0  # of the last grant
        self._shares: dict[int, _Share] = {}
        self._rings: list[tuple[int, int, _Share]] = []  # a heap; a share stands where `ring` and `place` say
        self._idle: dict[int, _Share] = {}

    def __len__(self) -> int:
        return self._count

    def first(self) -> Newcomer | None:
        """Give who goes next; those whose cap keeps them out do not."""
        lead = self._lead()
        return None if lead is None else lead.waiting[0]

    def push(self, newcomer: Newcomer) -> None:
        """Take in one more; a key that did not wait joins the next round."""
        share = self._share_of(newcomer.key)
        self._arrivals += 1
        newcomer.arrival = self._arrivals
        share.waiting.append(newcomer)
        self._count += 1
        if share.ring is None and not share.parked:
            self._join(share)

    def remove(self, newcomer: Newcomer) -> None:
        """Let one go, wherever it stands; it pays nothing."""
        share = self._shares[newcomer.key]
        was_first = share.waiting[0] is newcomer
        share.waiting.remove(newcomer)
        self._count -= 1
        if self._count == 0:
            self._forget_all()
        elif not share.waiting:
            self._rest(share)
        elif was_first and share.parked:
            self._join(share)

    def take(self, newcomer: Newcomer, size: int) -> None:
        """Let the first one go; its key pays, and all earlier rounds are over."""
        share = self._shares[newcomer.key]
        self._round = share.spent // self._quantum
        share.spent += size
        self.remove(newcomer)
        self._sweep()

    def admits(self, key: int, n: int) -> bool:
        """Tell whether one that has just come would go before all who wait."""
        share = self._shares.get(key)
        if (share is not None and share.waiting) or self.at_cap(key, n):
            return False
        lead = self._lead()
        return lead is None or self._round_of_joining(share) < lead.spent // self._quantum

    def pay_at_once(self, key: int, n: int) -> None:
        """Book what was given to one that did not wait, if anybody waits who could go."""
        if self._lead() is None:
            return
        share = self._share_of(key)
        self._round = self._round_of_joining(share)
        share.spent = max(share.spent, self._round * self._quantum) + n
        self._rest(share)
        self._sweep()

    def charge(self, key: int, n: int) -> None:
        """Book growth as debt, if anybody waits who could go; below 0 it gives back, but makes no credit."""
        if self._lead() is None:
            return
        share = self._share_of(key)
        if share.ring is not None:
            floor = min(share.ring, self._round + 1) * self._quantum
            share.spent = max(share.spent + n, floor)
            if share.spent // self._quantum < share.ring:
                self._join(share)
            return
        share.spent = max(share.spent, self._next_round_begins()) + n
        if not share.waiting:
            self._rest(share)

    def behind(self, key: int) -> bool:
        """Tell whether the key owes so much that its turn comes in a later round than that of the first one."""
        share, lead = self._shares.get(key), self._lead()
        return share is not None and lead is not None and share.spent // self._quantum > lead.spent // self._quantum

    def freed(self, key: int) -> None:
        """Let a parked key try again: it holds less than before."""
        share = self._shares.get(key)
        if share is not None and share.parked:
            self._join(share)

    def move(self, newcomer: Newcomer, key: int) -> None:
        """Give one that waits another key; its place there is that of its arrival."""
        self.remove(newcomer)
        newcomer.key = key
        share = self._share_of(key)
        share.waiting.append(newcomer)
        share.waiting.sort(key=lambda one: one.arrival)
        self._count += 1
        if (share.ring is None and not share.parked) or (share.parked and share.waiting[0] is newcomer):
            self._join(share)

    def at_cap(self, key: int, n: int) -> bool:
        """Tell whether the key holds too much to be let in with `n` more."""
        held = self._line.held_by.get(key, 0)
        return held > 0 and held + n > self._cap

    def _lead(self) -> _Share | None:
        """Give the key whose turn it is, after moving those before it to where they belong by now."""
        while self._rings:
            number, place, share = self._rings[0]
            if share.ring != number or share.place != place:
                heapq.heappop(self._rings)
            elif share.spent // self._quantum > number:
                self._join(share)
            elif self.at_cap(share.key, share.waiting[0].size):
                share.ring, share.parked = None, True
            else:
                return share
        return None

    def _join(self, share: _Share) -> None:
        """Put a key that waits at the end of its round, which is not before the next."""
        share.spent = max(share.spent, self._next_round_begins())
        self._places += 1
        share.ring, share.place, share.parked = share.spent // self._quantum, self._places, False
        heapq.heappush(self._rings, (share.ring, share.place, share))

    def _next_round_begins(self) -> int:
        return (self._round + 1) * self._quantum

    def _round_of_joining(self, share: _Share | None) -> int:
        number = self._round + 1
        return number if share is None else max(number, share.spent // self._quantum)

    def _share_of(self, key: int) -> _Share:
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = _Share(key)
        self._idle.pop(key, None)
        return share

    def _rest(self, share: _Share) -> None:
        """Keep a key with nobody waiting only for what it owes beyond its next turn."""
        share.ring, share.parked = None, False
        if share.spent <= self._next_round_begins():
            del self._shares[share.key]
            return
        self._idle[share.key] = share
        if len(self._idle) > MOST_IDLE_DEBTORS:
            del self._shares[self._oldest_idle().key]

    def _oldest_idle(self) -> _Share:
        return self._idle.pop(next(iter(self._idle)))

    def _sweep(self) -> None:
        """Look at two that owe: those who have paid are forgotten."""
        for _ in range(min(2, len(self._idle))):
            share = self._oldest_idle()
            if share.spent > self._next_round_begins():
                self._idle[share.key] = share
            else:
                del self._shares[share.key]

    def _forget_all(self) -> None:
        """Forgive everything: nobody waits to whom it would be owed."""
        self._shares.clear()
        self._rings.clear()
        self._idle.clear()
        self._round = 0
