"""Drive the semaphore with keys in turns: caps, a kept part, keys that change hands, sharing switched in mid-schedule.

All rules and invariants of the machine with one line hold here, too, that nobody is left when all is released
among them. What is let in at once, who may overtake whom and who is next have answers of their own.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

import limiter.fair_queue
from limiter.fair_queue import QUANTA_PER_LIMIT, FairQueue, KeyQueue, Round
from limiter.permit import AcquireWaiter
from tests.property.test_semaphore_machine import LIMITS, PICK, Request, SemaphoreMachine

KEYS = st.sampled_from(["a", "b", "c", None])
CAPS = st.sampled_from([100, 100, 60, 50, 30, 1])
BY_KEY, ONE_LINE, NO_ORDER = "by key", "one line", "no order"


class FairQueueMachine(SemaphoreMachine):
    """The same semaphore and the same model, with keys served in turns."""

    @initialize(
        limit=LIMITS,
        max_queue=st.sampled_from([0, 0, 3]),
        share=st.booleans(),
        cap=CAPS,
        quanta=st.sampled_from([1, 3, QUANTA_PER_LIMIT]),
        kept_of=st.sampled_from([0, 0, 2, 4]),
    )
    def begin(
        self,
        limit: int,
        max_queue: int,
        share: bool = True,
        cap: int = 100,
        quanta: int = QUANTA_PER_LIMIT,
        kept_of: int = 0,
    ) -> None:
        limiter.fair_queue.QUANTA_PER_LIMIT = quanta  # the limits here are small
        super().begin(limit=limit, max_queue=max_queue)
        self.cap = cap
        self.limiter._ledger.kept_of = kept_of
        self.limiter.set_sharing(share, cap)
        self.order = BY_KEY if share else ONE_LINE

    # Rules

    @rule(share=st.booleans(), cap=CAPS, tick=st.booleans())
    def set_sharing(self, share: bool, cap: int, tick: bool) -> None:
        self.cap = cap
        waiting = self._everybody_waiting()
        self.limiter.set_sharing(share, cap)
        assert all(waiter.done() for waiter in waiting if waiter not in self._everybody_waiting())
        if share:
            self.order = BY_KEY if self.order == ONE_LINE else self.order
        self._step(tick)

    @precondition(lambda self: self.requests or self.holders)
    @rule(pick=PICK, key=KEYS, tick=st.booleans())
    def reassign(self, pick: int, key: str | None, tick: bool) -> None:
        charges = [request.charge for request in self.requests if request.charge is not None]
        charges += [holder.charge for holder in self.holders if holder.charge is not None]
        if not charges:
            return
        if not self.settled:
            self.order = NO_ORDER  # who was granted before the move, was not overtaken by who moved
        charges[pick % len(charges)].reassign(key)
        self._step(tick)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            limiter.fair_queue.QUANTA_PER_LIMIT = QUANTA_PER_LIMIT

    # Invariants, after every step

    @invariant()
    def nobody_waits_who_could_go(self) -> None:
        """One could go if it is first of its key, what its key may hold lets it, no earlier round has one, and it fits.

        Of the keys outside only the first could, and only after all others.
        """
        head = self.limiter._acquirers.head
        outside = self._outside()
        could = {key: line[0] for key, line in self._lines().items() if self._may_hold(line[0].size, key)}
        for key in outside[1:]:
            could.pop(key, None)
        assert (head is not None) == bool(could)
        if head is None:
            return
        assert could[head.key] is head
        assert not self._fits(head.size)
        if (fair_queue := self.limiter._fair_queue) is not None:
            rounds = [self._round(fair_queue, key) for key in could if key not in outside]
            assert self._round(fair_queue, head.key) == min(rounds, default=self._round(fair_queue, head.key))

    @invariant()
    def keys_are_kept_only_while_they_wait_or_owe(self) -> None:
        fair_queue = self.limiter._fair_queue
        if fair_queue is None:
            return
        waiting = [key_queue for key_queue in fair_queue._key_queues.values() if key_queue.head is not None]
        assert sum(len(key_queue) for key_queue in waiting) == self.limiter.queue_size
        aside = fair_queue._capped, fair_queue._outside
        assert all(isinstance(line.queue, Round) or line.queue in aside for line in waiting)
        assert len(waiting) == fair_queue.keys_waiting == self.limiter.statistics().keys_waiting
        assert len(fair_queue._key_queues) - len(waiting) == len(fair_queue._idle)
        assert sorted(fair_queue._round_heap) == sorted(fair_queue._rounds)
        if not waiting:
            assert not fair_queue._key_queues
            assert not fair_queue._rounds

    @invariant()
    def each_stands_in_its_own_line_in_the_order_of_arrival(self) -> None:
        fair_queue = self.limiter._fair_queue
        if fair_queue is None:
            return
        for key, line in self._lines().items():
            assert [waiter.key for waiter in line] == [key] * len(line)
            assert [waiter.arrival for waiter in line] == sorted(waiter.arrival for waiter in line)

    # What the machine with one line has other answers for

    def may_be_let_in_at_once(self, n: int, key: str | None) -> bool:
        fair_queue = self.limiter._fair_queue
        if fair_queue is None or n == 0:
            return super().may_be_let_in_at_once(n, key)
        head = self.limiter._acquirers.head
        goes_first = head is None or self._round(fair_queue, key) < self._round(fair_queue, head.key)
        goes_first = goes_first and not (self._outside() and self.limiter._ledger.held_by(key))
        return key not in self._lines() and goes_first and self._may_hold(n, key) and self._fits(n)

    def line_of(self, request: Request) -> object:
        if request.holder is not None or self.order == ONE_LINE:
            return super().line_of(request)
        if self.order == NO_ORDER:
            return id(request)
        return request.charge and request.charge.key, "newcomers"

    def _collect(self) -> None:
        super()._collect()
        self.order = BY_KEY if self.limiter.share_by_key else ONE_LINE

    # Helpers

    def _lines(self) -> dict[object, list[AcquireWaiter]]:
        """Return those who wait by key, in the order in which they stand; one line without sharing."""
        fair_queue = self.limiter._fair_queue
        if fair_queue is not None:
            return {key: _members(line) for key, line in fair_queue._key_queues.items() if line.head is not None}
        newcomers = self.limiter._acquirers
        assert not isinstance(newcomers, FairQueue)
        line = _members(newcomers)
        return {line[0].key: line} if line else {}

    def _everybody_waiting(self) -> list[AcquireWaiter]:
        return [waiter for line in self._lines().values() for waiter in line]

    def _outside(self) -> list[object]:
        fair_queue = self.limiter._fair_queue
        return [] if fair_queue is None else [line.key for line in fair_queue._outside]

    def _may_hold(self, n: int, key: object) -> bool:
        """Return whether the cap lets a key take `n` more, and whether that leaves the kept part to others."""
        limit, ledger = self.limiter.limit, self.limiter._ledger
        held = ledger.held_by(key)
        if not self.limiter.share_by_key or limit <= 0 or held == 0:
            return True
        kept = limit // ledger.kept_of if ledger.kept_of else 0
        uncapped = self.cap == 100 or held + n <= limit * self.cap // 100
        return uncapped and (kept == 0 or ledger.held + n <= limit - kept)

    def _round(self, fair_queue: FairQueue, key: object) -> int:
        key_queue = fair_queue._key_queues.get(key)
        if key_queue is not None and isinstance(key_queue.queue, Round):
            return key_queue.spent // fair_queue._quantum
        return fair_queue._joining_round(key_queue)


def _members(line: "KeyQueue | object") -> list[AcquireWaiter]:
    found, waiter = [], getattr(line, "head", None)
    while waiter is not None:
        found.append(waiter)
        waiter = waiter.next
    return found


FairQueueMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestFairQueue = FairQueueMachine.TestCase
