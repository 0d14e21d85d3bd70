"""The soft pool as a state machine beside a model of it: reads, releases, ends and turns in any order.

The model has the rules in its own words: what is free, who may read, what counts as an overshoot. It asks the pool for
nothing, so that a rule that the pool forgets is a difference.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from limiter.soft_pool import SoftPool

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
        self.books = SoftPool(LIMIT, lambda: self.now)
        self.held = [0] * DIRECTIONS
        self.waiting: list[int] = []
        self.overshoots = 0
        self.depleted = self.muted = 0.0

    @property
    def used(self) -> int:
        return sum(self.held)

    @property
    def scarce(self) -> bool:
        return self.used >= LIMIT or bool(self.waiting)

    def _hold(self, one: int, size: int) -> None:
        before = self.used
        self.books.book(size - self.held[one])
        self.held[one] = size
        self.overshoots += before < LIMIT < self.used

    @rule(one=directions, size=sizes)
    def is_readable(self, one: int, size: int) -> None:
        """A direction whose receiver has no room: it reads if it may, else it waits."""
        if self.held[one] or one in self.waiting:
            return
        assert self.books.scarce is self.scarce
        if not self.scarce:
            self._hold(one, size)
            return
        self.waiting.append(one)
        self.books.wait(1)

    @rule(size=sizes)
    def all_are_readable(self, size: int) -> None:
        """A crowd: the first use the pool up, the others wait."""
        for one in range(DIRECTIONS):
            self.is_readable(one, size)

    @rule(one=directions, left=st.integers(0, READ))
    def receiver_takes(self, one: int, left: int) -> None:
        self._hold(one, min(left, self.held[one]))

    def _leaves_the_line(self, one: int) -> None:
        self.waiting.remove(one)
        self.books.wait(-1)

    @rule(one=directions)
    def ends(self, one: int) -> None:
        self._hold(one, 0)
        if one in self.waiting:
            self._leaves_the_line(one)

    @rule(size=sizes)
    def has_turns(self, size: int) -> None:
        """Give turns while anything is free."""
        while self.waiting and self.used < LIMIT:
            one = self.waiting[0]
            self._leaves_the_line(one)
            self._hold(one, size)

    @rule(seconds=st.floats(0, 10))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.depleted += seconds * (self.used >= LIMIT)
        self.muted += seconds * len(self.waiting)

    @invariant()
    def books_are_right(self) -> None:
        limit, used, muted, muted_millis, overshoots, depleted_millis = self.books.record()
        assert (limit, used, overshoots) == (LIMIT, self.used, self.overshoots)
        assert used <= limit + READ - 1
        assert muted == len(self.waiting)
        assert self.books.scarce is self.scarce
        assert abs(muted_millis / 1000 - self.muted) < 1e-3
        assert abs(depleted_millis / 1000 - self.depleted) < 1e-3


TestSoftPool = SoftPoolMachine.TestCase
TestSoftPool.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
