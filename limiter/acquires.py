"""The acquires that wait: in one line, or in turns by key, by bytes (`limiter.fair_line`). Which of them is next?

Rules for turns (docs/adr/0007):
- The acquire whose turn it is holds up the others while it does not fit.
- A key that holds so much that its first acquire would exceed its cap is parked: it holds up nobody, and has its turn
  again when one of its own permits has shrunk or ended.
- A part of the limit may be kept (`Ledger.kept_of`) for sites that hold nothing. While no more than that is free, the
  others stand aside, in the order in which their turns came, by acquires; the first of them holds up those behind it,
  and no newcomer.

Keys are looked at when their turn comes, so that no call walks through them. Nothing here books or grants.
"""

import sys
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from operator import attrgetter

from limiter.fair_line import Entry, FairLine, Path
from limiter.ledger import Ledger
from limiter.permit import AcquireWaiter
from limiter.sites import path_of

__all__ = ["QUANTA_PER_LIMIT", "AcquireLine"]

# A key's quantum is this part of the limit.
QUANTA_PER_LIMIT = 1024


class AcquireLine:
    """Acquires that wait for room in a ledger; the caller tells whenever a key holds less."""

    __slots__ = ("_aside", "_cap", "_cap_percent", "_capped", "_ledger", "_line", "_open_limit", "shares")

    def __init__(self, ledger: Ledger, shares: bool) -> None:
        self._ledger = ledger
        self.shares = shares
        self._cap_percent = 100
        # An entry stands for an acquire that does not wait, while its turn is looked for.
        self._line: FairLine[AcquireWaiter | Entry[None]] = FairLine()
        # Keys and paths of sites that are parked; if nobody waits at one, it is in neither.
        self._capped: set[Hashable] = set()
        self._aside: OrderedDict[Path, None] = OrderedDict()
        self.measure()

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[AcquireWaiter]:
        """Yield the first acquire of each key in the order of their turns, parked ones last; then the second."""
        return (waiter for waiter in self._line if isinstance(waiter, AcquireWaiter))

    def push(self, waiter: AcquireWaiter) -> None:
        """Append an acquire to its key."""
        self._line.push(self._path(waiter.key), waiter)

    def remove(self, waiter: AcquireWaiter) -> None:
        """Remove an acquire from any place; it costs its key nothing."""
        self._line.remove(waiter)
        self._unpark(waiter.key)
        if self._aside and not self._line.waiting(site := self._path(waiter.key)[:1]):
            self._aside.pop(site, None)

    def next(self) -> AcquireWaiter | None:
        """Return the acquire that is next; None if nobody may be."""
        head = self._head() if self.shares else self._line.head()
        while head is None and self._aside:
            # The acquire of a site that stands aside no more is granted at once, or the site is the first aside again.
            site, _ = self._aside.popitem(last=False)
            self._line.set_parked(site, parked=False)
            head = self._uncapped()
            if isinstance(head, AcquireWaiter) and self._takes_of_kept(head.key, head.size):
                self._set_aside(site)
                self._aside.move_to_end(site, last=False)
                return None
        return head if isinstance(head, AcquireWaiter) else None

    def grant(self, waiter: AcquireWaiter, size: int) -> None:
        """Take out the acquire that is next, and charge its key."""
        self._line.remove(waiter, size)

    def passes(self, key: Hashable, n: int, size: int) -> bool:
        """Return whether an acquire of `n` that has just come goes before all that wait; its key is charged `size`."""
        if self.shares and (self.at_cap(key, n) or self._stands_aside(key, n)):
            return False
        if not self._line:
            return True
        newcomer = self._line.push(self._path(key), Entry(None))
        if self._head() is newcomer:
            self._line.remove(newcomer, size)
            return True
        self._line.remove(newcomer)
        return False

    def spend(self, key: Hashable, n: int) -> None:
        """Charge growth to its key; `n < 0` gives back."""
        self._line.spend(self._path(key), n)

    def is_behind(self, key: Hashable) -> bool:
        """Return whether what a key owes puts its turn in a later round than that of the acquire which is next."""
        return self.shares and self._head() is not None and self._line.is_behind(self._path(key))

    def freed(self, key: Hashable) -> None:
        """Look again at a key that holds less than before."""
        if not self.shares:
            return
        self._unpark(key)
        if self._aside and not self._ledger.held_by_site(key):
            site = self._path(key)[:1]
            if site in self._aside:
                del self._aside[site]
                self._line.set_parked(site, parked=False)

    # Settings and readings

    def set_sharing(self, shares: bool, cap_percent: int) -> None:
        """Change how keys share; debts end with that."""
        self._cap_percent = cap_percent
        self._measure(shares)

    def measure(self) -> None:
        """Compute again what follows from the limit; debts end with a change of the quantum."""
        self._measure(self.shares)

    def _measure(self, shares: bool) -> None:
        limit = self._ledger.limit
        quantum = max(1, limit // QUANTA_PER_LIMIT) if shares else 1
        self._cap = (
            limit * self._cap_percent // 100 if shares and limit > 0 and self._cap_percent < 100 else sys.maxsize
        )
        self._open_limit = self._ledger.open_limit if shares else sys.maxsize
        for path in (*map(path_of, self._capped), *self._aside):
            self._line.set_parked(path, parked=False)
        self._capped.clear()
        self._aside.clear()
        if (shares, quantum) != (self.shares, self._line.quantum):
            moved = sorted(self, key=attrgetter("queued_at"))
            for waiter in moved:
                self._line.remove(waiter)
            self.shares, self._line = shares, FairLine(quantum)
            for waiter in moved:
                self.push(waiter)

    @property
    def caps_keys(self) -> bool:
        """Return whether keys are capped."""
        return self._cap < sys.maxsize

    @property
    def short(self) -> bool:
        """Return whether anybody waits for more than permits of its own key."""
        return self._head() is not None or bool(self._aside)

    def at_cap(self, key: Hashable, n: int) -> bool:
        """Return whether the cap forbids `key` an acquire of `n` more."""
        if self._cap == sys.maxsize:
            return False
        held = self._ledger.held_by(key)
        return held > 0 and held + n > self._cap

    def is_capped(self, key: Hashable) -> bool:
        """Return whether `key` waits only for its own permits."""
        self._head()
        return key in self._capped

    def keys(self) -> tuple[int, int, int]:
        """Return how many keys wait, how many of them only for their own permits, and what all keys owe."""
        self._head()
        waiting, debt = self._line.keys()
        return waiting, len(self._capped), int(debt)

    # Turns

    def _path(self, key: Hashable) -> Path:
        return path_of(key) if self.shares else ()

    def _head(self) -> AcquireWaiter | Entry[None] | None:
        """Return the first in turn that is not parked, after parking those before it that may not go."""
        while isinstance(head := self._uncapped(), AcquireWaiter) and self._stands_aside(head.key, head.size):
            self._set_aside(path_of(head.key)[:1])
        return head

    def _uncapped(self) -> AcquireWaiter | Entry[None] | None:
        line = self._line
        while isinstance(head := line.head(), AcquireWaiter) and self.at_cap(head.key, head.size):
            self._capped.add(head.key)
            line.set_parked(path_of(head.key), parked=True)
        return head

    def _set_aside(self, site: Path) -> None:
        self._aside[site] = None
        self._line.set_parked(site, parked=True)

    def _unpark(self, key: Hashable) -> None:
        if key in self._capped:
            self._capped.remove(key)
            self._line.set_parked(path_of(key), parked=False)

    def _takes_of_kept(self, key: Hashable, n: int) -> bool:
        return self._ledger.held + n > self._open_limit and self._ledger.held_by_site(key) > 0

    def _stands_aside(self, key: Hashable, n: int) -> bool:
        if self._aside:
            return self._ledger.held_by_site(key) > 0
        return self._takes_of_kept(key, n)
