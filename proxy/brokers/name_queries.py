"""Queries for names: who waits for each, and the turns in which they get one of few slots.

Rules:
- Networks of clients (`host_network`) take turns, of IPv6 their sites do first, and the queries of a network run in
  their order. A query that several networks wait for stands in the line of each, so that nobody delays a name by asking
  for it first.
- A site has at most all slots but one, a network of several in a site all but two. The proxy itself, the network `""`,
  may have all.
- Of more than `MOST_WAITING` in line the newest query leaves of the network with most, in the site with most. It may
  be the newcomer's.
- A query that hangs leaves its slot to others while fewer than `MOST_HANGING` hang so.

No I/O and no clock. No method has an `await`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from limiter.fair_line import Entry, FairLine
from limiter.sites import SiteKey, path_of
from proxy.core.key_members import SiteSizes
from proxy.core.task_turns import PacedWaiters, TaskTurns

MOST_WAITING: Final = 1024
# Most threads that hang, beside those in slots, of all names that share the slots.
MOST_HANGING: Final = 8


@dataclass(frozen=True, slots=True)
class NameAnswer:
    """The answer for a name at `at`: its addresses, found at `found_at`, or the reason why there are none.

    `problem` is the reason why the addresses are those of an earlier answer.
    """

    addresses: tuple[str, ...]
    error: str
    at: float
    until: float
    found_at: float
    problem: str = ""

    @property
    def stale(self) -> bool:
        """Return whether the addresses are those of an earlier answer, which the resolver failed to replace."""
        return not self.error and self.found_at < self.at


class Asker:
    """A network that asks for a name: its place in line, how many of its clients wait, and the answer that they get."""

    __slots__ = ("answer", "entry", "waiters", "waiting")

    def __init__(self, turns: TaskTurns) -> None:
        self.entry: Entry[tuple[Query, str]] | None = None
        self.answer: NameAnswer | None = None
        self.waiters = 0
        self.waiting = PacedWaiters(turns)

    def settle(self, answer: NameAnswer) -> None:
        """Set the answer of the clients, if they have none yet; they go on in turns."""
        if self.answer is None:
            self.answer = answer
            self.waiting.wake()


class Query:
    """A query for a name; `network` is the one whose turn it took."""

    __slots__ = ("askers", "hanging", "name", "network", "slots", "started")

    def __init__(self, name: str, slots: "Slots") -> None:
        self.name = name
        self.slots = slots
        self.askers: dict[str, Asker] = {}
        self.network = ""
        self.started = False
        self.hanging = False

    @property
    def waiters(self) -> int:
        """Return how many clients wait."""
        return sum(asker.waiters for asker in self.askers.values())

    def settle(self, answer: NameAnswer) -> None:
        """Set the answer of all clients."""
        for asker in self.askers.values():
            asker.settle(answer)


class Slots:
    """The slots of queries, and the line for them; `start` starts a query that has its turn."""

    __slots__ = ("_at_once", "_free", "_in_slots", "_line", "_outside", "_running", "_start")

    def __init__(self, at_once: int, start: Callable[[Query], None]) -> None:
        self._at_once = self._free = at_once
        self._start = start
        # Each query with each network that asks for it.
        self._line: FairLine[Entry[tuple[Query, str]]] = FairLine()
        # Queries in slots.
        self._running: SiteSizes[str] = SiteSizes()
        # Queries that hang: those that still have a slot, in order, and those that have left it.
        self._in_slots: dict[Query, None] = {}
        self._outside: set[Query] = set()

    @property
    def hanging(self) -> int:
        """Return how many queries hang."""
        return len(self._in_slots) + len(self._outside)

    def join(self, query: Query, network: str, asker: Asker) -> tuple[Query, Asker] | None:
        """Add a network to those that ask for a query; a query that waits is in the network's line from now on.

        If too many are in line, take one out; return its query, and the asker that has lost it.
        """
        query.askers[network] = asker
        if query.started:
            return None
        asker.entry = self._line.push(path_of(network), Entry((query, network)))
        self._park(network)
        self._serve()
        if len(self._line) <= MOST_WAITING or (longest := self._line.longest()) is None:
            return None
        query, network = longest.item
        return query, self.leave(query, network)

    def leave(self, query: Query, network: str) -> Asker:
        """Remove a network from those that ask for a query which has not started."""
        asker = query.askers.pop(network)
        self._out_of_line(asker)
        return asker

    def hangs(self, query: Query) -> None:
        """Record that a query has run for too long."""
        query.hanging = True
        self._in_slots[query] = None
        self._let_out()

    def ended(self, query: Query) -> None:
        """Return the slot of a query, if the query still has it."""
        if query in self._outside:
            self._outside.discard(query)
            self._let_out()
        else:
            self._in_slots.pop(query, None)
            self._give_back(query)

    def _let_out(self) -> None:
        while self._in_slots and len(self._outside) < MOST_HANGING:
            query = next(iter(self._in_slots))
            del self._in_slots[query]
            self._outside.add(query)
            self._give_back(query)

    def _give_back(self, query: Query) -> None:
        self._free += 1
        self._running.shrink(query.network)
        self._park(query.network)
        self._serve()

    def _serve(self) -> None:
        while self._free and self._line.head() is not None:
            query, network = self._line.pop().item
            for each in query.askers.values():
                self._out_of_line(each)
            self._free -= 1
            self._running.grow(network)
            self._park(network)
            query.network, query.started = network, True
            self._start(query)

    def _park(self, network: str) -> None:
        """Pass over a site, or a network in it, while it has as many slots as it may have."""
        path, most, running = path_of(network), max(1, self._at_once - 1), self._running
        if isinstance(network, SiteKey):
            self._line.set_parked(path, parked=running.inside(network) >= max(1, most - 1))
        self._line.set_parked(path[:1], parked=network != "" and running[network] >= most)

    def _out_of_line(self, asker: Asker) -> None:
        if asker.entry is not None:
            self._line.remove(asker.entry)
            asker.entry = None
