"""A line in turns by path as a state machine: items come, go, are served and parked, and paths are charged without any.

The model keeps the items of each path in order, and for any two keys of a level how much more one was charged than the
other since both have waited for a turn. Who is ahead of another is not served.
"""

from collections import Counter, deque
from itertools import permutations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from limiter.fair_line import Entry, FairLine, Path

PICK = st.integers(0, 1000)
PATHS: list[tuple[str, ...]] = [(site, net, who) for site in "ab" for net in "mn" for who in "xyz"]
PATHS += [(site, "m", "x") for site in "cde"]
PREFIXES = sorted({path[:depth] for path in PATHS for depth in (1, 2, 3)})
SIBLINGS = [(one, other) for one, other in permutations(PREFIXES, 2) if one[:-1] == other[:-1]]
paths = st.sampled_from(PATHS)
prefixes = st.sampled_from(PREFIXES)


def prefixes_of(path: Path) -> list[Path]:
    return [path[:depth] for depth in range(1, len(path) + 1)]


class FairLineMachine(RuleBasedStateMachine):
    """Items are numbers; the largest cost is drawn first, so that the bounds of most runs are narrow."""

    @initialize(largest=st.sampled_from([1, 1, 1, 7]), quantum=st.sampled_from([1, 1, 5]))
    def begin(self, largest: int, quantum: int) -> None:
        self.line: FairLine[Entry[int]] = FairLine(quantum)
        self.largest, self.quantum = largest, quantum
        self.items: dict[Path, deque[Entry[int]]] = {}
        self.costs: dict[int, int] = {}
        self.path_of: dict[int, Path] = {}
        self.parked: set[Path] = set()
        self.behind: set[Path] = set()
        self.number = 0
        # By pair of siblings: what the first was charged more than the second; and what each may owe from before.
        self.ahead: dict[tuple[Path, Path], float] = {}
        self.owes: Counter[Path] = Counter()
        # By level: the turns of band 0 since the last one of band 1, while both wait.
        self.in_front: dict[Path, int] = {}

    def _free(self) -> list[Path]:
        return [path for path in self.items if not self.parked.intersection(prefixes_of(path))]

    def _step(self) -> None:
        """Begin to compare keys that wait from now on, and end with those that do not."""
        waiting = {prefix for path in self.items for prefix in prefixes_of(path)}
        self.parked &= waiting
        self.behind &= waiting
        self.in_front = {
            level: turns for level, turns in self.in_front.items() if level in waiting or (self.items and not level)
        }
        ready = {prefix for path in self._free() for prefix in prefixes_of(path)}
        self.ahead = {
            (one, other): self.ahead.get((one, other), 0)
            for one, other in SIBLINGS
            if one in ready and other in ready and (one in self.behind) == (other in self.behind)
        }

    def _charged(self, path: Path, cost: float) -> None:
        for prefix in prefixes_of(path):
            for one, other in self.ahead:
                if prefix in (one, other):
                    self.ahead[one, other] += cost if prefix == one else -cost

    def _served(self, path: Path, cost: float) -> None:
        """No key is served that is ahead of another, beyond what the other may have owed when it began to wait."""
        slack = 0 if self.largest == self.quantum == 1 else 2 * self.quantum
        for one, other in self.ahead:
            if one in prefixes_of(path):
                assert self.ahead[one, other] <= slack + self.owes[other], (one, other)
        self._nobody_in_front_waits_for_long(path)
        self._charged(path, cost)
        if cost > self.quantum:
            self.owes.update(dict.fromkeys(prefixes_of(path), int(cost)))

    def _nobody_in_front_waits_for_long(self, path: Path) -> None:
        """Beside keys of band 0 those of band 1 have one turn in four."""
        ready = {prefix for free in self._free() for prefix in prefixes_of(free)}
        for prefix in prefixes_of(path):
            siblings = [other for one, other in SIBLINGS if one == prefix and other in ready]
            bands = {other in self.behind for other in (prefix, *siblings)}
            if bands == {True, False}:
                turns = self.in_front.setdefault(prefix[:-1], 0)
                assert turns == 3 if prefix in self.behind else turns < 3
                self.in_front[prefix[:-1]] = 0 if prefix in self.behind else turns + 1

    @rule(path=paths, cost=PICK)
    def push(self, path: Path, cost: int) -> None:
        self.number += 1
        entry = self.line.push(path, Entry(self.number))
        self.costs[self.number] = 1 + cost % self.largest
        assert entry.item == self.number
        self.items.setdefault(path, deque()).append(entry)
        self.path_of[self.number] = path
        self._step()

    @precondition(lambda self: self.line.head() is not None)
    @rule()
    def pop(self) -> None:
        head = self.line.head()
        assert head is not None
        cost = self.costs[head.item]
        item = self.line.pop(cost).item
        path = self.path_of.pop(item)
        line = self.items[path]
        entry = line.popleft()
        assert entry is head, "the items of a path are first in, first out"
        assert entry.item == item
        assert not self.parked.intersection(prefixes_of(path))
        if not line:
            del self.items[path]
        self._served(path, cost)
        self._step()

    @rule(times=st.integers(2, 30))
    def pop_many(self, times: int) -> None:
        for _ in range(times):
            if self.line.head() is not None:
                self.pop()

    @precondition(lambda self: self.line.head() is not None)
    @rule()
    def skip(self) -> None:
        entry = self.line.head()
        assert entry is not None
        self.line.skip()
        self._served(self.path_of[entry.item], 1)
        self._step()

    @precondition(lambda self: self.items)
    @rule(pick=PICK)
    def remove(self, pick: int) -> None:
        number = sorted(self.path_of)[pick % len(self.path_of)]
        path = self.path_of.pop(number)
        entry = next(entry for entry in self.items[path] if entry.item == number)
        assert self.line.remove(entry)
        assert not self.line.remove(entry)
        self.items[path].remove(entry)
        if not self.items[path]:
            del self.items[path]
        self._step()

    @rule(prefix=prefixes)
    def park(self, prefix: Path) -> None:
        self.line.set_parked(prefix, parked=True)
        self.parked.add(prefix)
        self._step()

    @rule(prefix=prefixes)
    def unpark(self, prefix: Path) -> None:
        self.line.set_parked(prefix, parked=False)
        self.parked.discard(prefix)
        self._step()

    @rule(prefix=prefixes, band=st.integers(0, 1))
    def set_band(self, prefix: Path, band: int) -> None:
        """Turns are compared with those of the same band, from now on."""
        self.line.set_band(prefix, band)
        self.behind ^= {prefix} if (prefix in self.behind) != band else set()
        self.ahead = {pair: ahead for pair, ahead in self.ahead.items() if prefix not in pair}
        self._step()

    @rule(path=paths, cost=st.integers(1, 9), back=st.integers(0, 9))
    def spend(self, path: Path, cost: int, back: int) -> None:
        self.line.spend(path, cost)
        self.line.spend(path, -min(cost, back))
        charged = cost - min(cost, back)
        self._charged(path, charged)
        # Nothing of the turn that a key has comes back.
        self.owes.update(dict.fromkeys(prefixes_of(path), charged + (self.quantum if back else 0)))

    def teardown(self) -> None:
        """Nobody is left over, and nobody who is parked keeps others."""
        if not hasattr(self, "line"):
            return
        for prefix in list(self.parked):
            self.unpark(prefix)
        while self.items:
            self.pop()
        assert (len(self.line), self.line.head(), self.line.longest()) == (0, None, None)

    @invariant()
    def who_waits_is_counted_and_somebody_is_next(self) -> None:
        assert len(self.line) == len(self.path_of)
        assert (self.line.head() is not None) == bool(self._free())

    @invariant()
    def all_are_seen_the_next_one_first_and_those_of_a_path_in_order(self) -> None:
        seen = [entry.item for entry in self.line]
        assert sorted(seen) == sorted(self.path_of)
        head = self.line.head()
        assert head is None or (self.behind and head.item in seen) or head.item == seen[0]
        for entries in self.items.values():
            assert [item for item in seen if self.path_of[item] == self.path_of[entries[0].item]] == [
                entry.item for entry in entries
            ]
        assert self.line.keys()[0] == len({path[0] for path in self.items})

    @invariant()
    def the_longest_is_the_path_with_most_at_each_level(self) -> None:
        longest = self.line.longest()
        if longest is None:
            assert not self.items
            return
        path = self.path_of[longest.item]
        assert longest is self.items[path][-1]
        for prefix in prefixes_of(path):
            sizes: Counter[Path] = Counter()
            for each, entries in self.items.items():
                if each[: len(prefix) - 1] == prefix[:-1]:
                    sizes[each[: len(prefix)]] += len(entries)
            assert sizes[prefix] == max(sizes.values())


TestFairLine = FairLineMachine.TestCase
TestFairLine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
