"""The soft pool as a state machine: reads, releases and ends of many directions in any order."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from limiter.soft_pool import LocalBooks, PoolLine

LIMIT = 250
READ = 100
DIRECTIONS = 8
directions = st.integers(0, DIRECTIONS - 1)
sizes = st.integers(1, READ)


class SoftPoolMachine(RuleBasedStateMachine):
    """One thread's directions: each holds at most one read, and reads only while it holds nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.pick = 0
        self.books = LocalBooks(LIMIT, lambda: self.now)
        self.line: PoolLine[int] = PoolLine(self.books, lambda below: self.pick % below)
        self.held = [0] * DIRECTIONS
        self.passed_over = dict.fromkeys(range(DIRECTIONS), 0)
        self.depleted = self.muted = 0.0

    def _hold(self, one: int, size: int) -> None:
        self.books.pool_change(self.held[one], size)
        self.held[one] = size

    @rule(one=directions, size=sizes)
    def is_readable(self, one: int, size: int) -> None:
        """A direction whose receiver has no room: it reads if it may, else it waits."""
        if self.held[one] or one in self.line:
            return
        if self.books.pool_scarce():
            self.line.enter(one)
            self.passed_over[one] = 0
        else:
            self._hold(one, size)

    @rule(one=directions, left=st.integers(0, READ))
    def receiver_takes(self, one: int, left: int) -> None:
        self._hold(one, min(left, self.held[one]))

    @rule(one=directions)
    def ends(self, one: int) -> None:
        self._hold(one, 0)
        self.line.leave(one)
        assert not self.line.leave(one)

    @rule(size=sizes, pick=st.integers(0, 100))
    def has_turns(self, size: int, pick: int) -> None:
        """Give turns while anything is free: as a thread does after each round."""
        self.pick = pick
        while (one := self.line.admit()) is not None:
            assert self.books.pool_free() or self.held[one] == 0
            self._hold(one, size)
            for other in range(DIRECTIONS):
                if other in self.line:
                    self.passed_over[other] += 1
                    # Once round the line from its random start, and once in the order of coming.
                    assert self.passed_over[other] <= 2 * DIRECTIONS

    @rule(seconds=st.floats(0, 10))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.depleted += seconds * (not self.books.pool_free())
        self.muted += seconds * len(self.line)

    @invariant()
    def books_are_right(self) -> None:
        limit, used, muted, muted_millis, _, depleted_millis = self.books.pool()
        assert used == sum(self.held)
        assert used <= limit + READ - 1
        assert muted == len(self.line)
        assert self.books.pool_free() == (used < limit)
        assert abs(muted_millis / 1000 - self.muted) < 1e-3
        assert abs(depleted_millis / 1000 - self.depleted) < 1e-3


TestSoftPool = SoftPoolMachine.TestCase
TestSoftPool.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
