"""Drive the semaphore with keys in turns: caps, a kept part, sharing switched in mid-schedule.

All rules and invariants of the machine with one line hold here, too, that nobody is left when all is released
among them. What is let in at once, who may overtake whom and who could go have answers of their own.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

import limiter.acquires
from limiter.acquires import QUANTA_PER_LIMIT
from limiter.semaphore import MOST_AT_ONCE
from tests.property.test_semaphore_machine import AT_ONCE, LIMITS, Request, SemaphoreMachine

CAPS = st.sampled_from([100, 100, 60, 50, 30, 1])
BY_KEY, ONE_LINE = "by key", "one line"


class TurnsMachine(SemaphoreMachine):
    """The same semaphore and the same model, with keys served in turns."""

    @initialize(
        limit=LIMITS,
        max_queue=st.sampled_from([0, 0, 3]),
        at_once=AT_ONCE,
        share=st.booleans(),
        cap=CAPS,
        quanta=st.sampled_from([1, 3, QUANTA_PER_LIMIT]),
        kept_of=st.sampled_from([0, 0, 2, 4]),
    )
    def begin(
        self,
        limit: int,
        max_queue: int,
        at_once: int = MOST_AT_ONCE,
        kept_of: int = 0,
        share: bool = True,
        cap: int = 100,
        quanta: int = QUANTA_PER_LIMIT,
    ) -> None:
        limiter.acquires.QUANTA_PER_LIMIT = quanta  # the limits here are small
        super().begin(limit=limit, max_queue=max_queue, at_once=at_once, kept_of=kept_of)
        self.cap, self.kept_of = cap, kept_of
        self.limiter.set_sharing(share, cap)
        self.order = BY_KEY if share else ONE_LINE

    # Rules

    @rule(share=st.booleans(), cap=CAPS, tick=st.booleans())
    def set_sharing(self, share: bool, cap: int, tick: bool) -> None:
        self.cap = cap
        waiting = self.limiter.queue_size
        granted = self.limiter.statistics().granted
        self.limiter.set_sharing(share, cap)
        assert self.limiter.queue_size >= waiting - (self.limiter.statistics().granted - granted), "nobody is lost"
        if share:
            self.order = BY_KEY
        self._step(tick)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            limiter.acquires.QUANTA_PER_LIMIT = QUANTA_PER_LIMIT

    # Invariants, after every step

    @invariant()
    def nobody_waits_who_could_go(self) -> None:
        """Of the first of each key whom cap and kept part let go, one does not fit: its turn holds up the others.

        Or all of them hold something and stand behind one that would take of the part kept for others.
        """
        if not self.limiter.share_by_key:
            super().nobody_waits_who_could_go()
            return
        if not self.all_are_served:
            return
        first = self._first_of_each_key()
        could = {key: size for key, size in first.items() if self._uncapped(size, key) and self._leaves(size, key)}
        if all(self._fits(size) for size in could.values()):
            outside = any(self._uncapped(size, key) and not self._leaves(size, key) for key, size in first.items())
            assert not could or (outside and all(self._held_by(key) for key in could))

    @invariant()
    def keys_that_wait_are_counted_and_nobody_owes_without_any(self) -> None:
        numbers = self.limiter.statistics()
        if self.limiter.share_by_key:
            assert numbers.keys_waiting == len(self._first_of_each_key())
        if not self.limiter.queue_size:
            assert (numbers.keys_waiting, numbers.keys_capped, numbers.debt) == (0, 0, 0)

    # What the machine with one line has other answers for

    def may_be_let_in_at_once(self, n: int, key: str | None) -> bool | None:
        if not self.limiter.share_by_key or n == 0:
            return super().may_be_let_in_at_once(n, key)
        first = self._first_of_each_key()
        if key in first or not (self._fits(n) and self._uncapped(n, key) and self._leaves(n, key)):
            return False
        # The turn of a key is before that of others, or behind it, as both have spent.
        return None if first else True

    def line_of(self, request: Request) -> object:
        if request.holder is not None or self.order == ONE_LINE:
            return super().line_of(request)
        return request.key, "newcomers"

    def _collect(self) -> None:
        super()._collect()
        self.order = BY_KEY if self.limiter.share_by_key else ONE_LINE

    # Helpers

    def _first_of_each_key(self) -> dict[object, int]:
        """Return the size of the first that waits of each key."""
        first: dict[object, int] = {}
        for each in self.newcomers():
            first.setdefault(each.key, each.size)
        return first

    def _held_by(self, key: object) -> int:
        by_key = dict(self.limiter.top_holders(9))
        return self.limiter.held - sum(by_key.values()) if key is None else by_key.get(key, 0)

    def _uncapped(self, n: int, key: object) -> bool:
        limit, held = self.limiter.limit, self._held_by(key)
        return limit <= 0 or not held or self.cap == 100 or held + n <= limit * self.cap // 100

    def _leaves(self, n: int, key: object) -> bool:
        """Return whether `n` more for a key leave what is kept to others."""
        limit = self.limiter.limit
        kept = limit // self.kept_of if self.kept_of and limit > 0 else 0
        return not kept or not self._held_by(key) or self.limiter.held + n <= limit - kept


TurnsMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestTurns = TurnsMachine.TestCase
