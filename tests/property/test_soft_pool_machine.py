"""The soft pool as a state machine beside a model of it: reads, releases, ends and turns in any order.

The model has the rules in its own words: what is free, who may read, whose turn it is, what counts as an overshoot. It
asks the pool for nothing, so that a rule that the pool forgets is a difference.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from limiter.soft_pool import LocalBooks, PoolLine

LIMIT = 250
READ = 100
DIRECTIONS = 8
directions = st.integers(0, DIRECTIONS - 1)
# The whole of the limit can be used up to the byte.
sizes = st.sampled_from((1, 50, 99, READ))


class SoftPoolMachine(RuleBasedStateMachine):
    """One thread's directions: each holds at most one read, and reads only while it holds nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.pick = 0
        self.books = LocalBooks(LIMIT, lambda: self.now)
        self.line: PoolLine[int] = PoolLine(self.books, lambda below: self.pick % below)
        self.held = [0] * DIRECTIONS
        self.waiting: list[int] = []
        self.fresh = True
        self.overshoots = 0
        self.turns_passed = dict.fromkeys(range(DIRECTIONS), 0)
        self.depleted = self.muted = 0.0

    @property
    def used(self) -> int:
        return sum(self.held)

    @property
    def scarce(self) -> bool:
        return self.used >= LIMIT or bool(self.waiting)

    def _hold(self, one: int, size: int) -> None:
        before = self.used
        self.books.pool_change(self.held[one], size)
        self.held[one] = size
        self.overshoots += before < LIMIT < self.used

    @rule(one=directions, size=sizes)
    def is_readable(self, one: int, size: int) -> None:
        """A direction whose receiver has no room: it reads if it may, else it waits."""
        if self.held[one] or one in self.waiting:
            return
        assert self.books.pool_scarce() is self.scarce
        if not self.scarce:
            self._hold(one, size)
            return
        self.line.enter(one)
        self.fresh = self.fresh or not self.waiting
        self.waiting.append(one)
        self.turns_passed[one] = 0

    @rule(size=sizes)
    def all_are_readable(self, size: int) -> None:
        """A crowd: the first use the pool up, the others wait."""
        for one in range(DIRECTIONS):
            self.is_readable(one, size)

    @rule(one=directions)
    def asks_again(self, one: int) -> None:
        """A direction that waits keeps its place, however often it asks."""
        if one in self.waiting:
            self.line.enter(one)

    @rule(one=directions, left=st.integers(0, READ))
    def receiver_takes(self, one: int, left: int) -> None:
        self._hold(one, min(left, self.held[one]))

    @rule(size=sizes, pick=st.integers(0, 100))
    def all_receivers_take_and_everybody_has_a_turn(self, size: int, pick: int) -> None:
        """The line is empty after that: the next begins at a random place again."""
        for _ in range(DIRECTIONS):
            for one in range(DIRECTIONS):
                self._hold(one, 0)
            self.has_turns(size, pick, DIRECTIONS)

    @rule(one=directions)
    def ends(self, one: int) -> None:
        self._hold(one, 0)
        assert self.line.leave(one) is (one in self.waiting)
        if one in self.waiting:
            self.waiting.remove(one)
        assert not self.line.leave(one)

    @rule(size=sizes, pick=st.integers(0, 100), most=st.integers(1, DIRECTIONS))
    def has_turns(self, size: int, pick: int, most: int) -> None:
        """Give turns while anything is free, some at a time: as a thread does in each round."""
        self.pick = pick
        for _ in range(most):
            expected = self._next_turn(pick)
            assert self.line.admit() == expected
            if expected is None:
                return
            self._hold(expected, size)
            for other in self.waiting:
                self.turns_passed[other] += 1
                # Once round the line from its random start, and once in the order of coming.
                assert self.turns_passed[other] <= 2 * DIRECTIONS

    def _next_turn(self, pick: int) -> int | None:
        if not self.waiting or self.used >= LIMIT:
            return None
        if self.fresh:
            self.fresh = False
            start = pick % len(self.waiting)
            self.waiting = self.waiting[start:] + self.waiting[:start]
        return self.waiting.pop(0)

    @rule(seconds=st.floats(0, 10))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.depleted += seconds * (self.used >= LIMIT)
        self.muted += seconds * len(self.waiting)

    @invariant()
    def books_are_right(self) -> None:
        limit, used, muted, muted_millis, overshoots, depleted_millis = self.books.pool()
        assert (limit, used, overshoots) == (LIMIT, self.used, self.overshoots)
        assert used <= limit + READ - 1
        assert muted == len(self.line) == len(self.waiting)
        assert all((one in self.line) is (one in self.waiting) for one in range(DIRECTIONS))
        assert self.books.pool_free() is (used < limit)
        assert self.books.pool_scarce() is self.scarce
        assert abs(muted_millis / 1000 - self.muted) < 1e-3
        assert abs(depleted_millis / 1000 - self.depleted) < 1e-3


TestSoftPool = SoftPoolMachine.TestCase
TestSoftPool.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
