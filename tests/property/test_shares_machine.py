"""Drive the semaphore with keys in turns: caps, keys that change hands, sharing switched on and off in mid-schedule.

All rules and invariants of the machine with one line hold here, too, that nobody is left when all is released
among them. What is let in at once, who may overtake whom and who is next have answers of their own.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

import limiter.shares
from limiter.permit import Newcomer
from limiter.shares import QUANTA_PER_LIMIT, Ring, Share, Shares
from tests.property.test_semaphore_machine import LIMITS, PICK, Request, SemaphoreMachine

KEYS = st.sampled_from(["a", "b", "c", None])
CAPS = st.sampled_from([100, 100, 60, 50, 30, 1])
BY_KEY, ONE_LINE, NO_ORDER = "by key", "one line", "no order"


class SharesMachine(SemaphoreMachine):
    """The same semaphore and the same model, with shares."""

    @initialize(
        limit=LIMITS,
        max_queue=st.sampled_from([0, 0, 3]),
        share=st.booleans(),
        cap=CAPS,
        quanta=st.sampled_from([1, 3, QUANTA_PER_LIMIT]),
    )
    def begin(
        self, limit: int, max_queue: int, share: bool = True, cap: int = 100, quanta: int = QUANTA_PER_LIMIT
    ) -> None:
        limiter.shares.QUANTA_PER_LIMIT = quanta  # the limits here are small
        super().begin(limit=limit, max_queue=max_queue)
        self.cap = cap
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
    def recharge(self, pick: int, key: str | None, tick: bool) -> None:
        claims = [request.claim for request in self.requests if request.claim is not None]
        claims += [holder.claim for holder in self.holders if holder.claim is not None]
        if not claims:
            return
        if not self.settled:
            self.order = NO_ORDER  # who was granted before the move, was not overtaken by who moved
        claims[pick % len(claims)].recharge(key)
        self._step(tick)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            limiter.shares.QUANTA_PER_LIMIT = QUANTA_PER_LIMIT

    # Invariants, after every step

    @invariant()
    def nobody_waits_who_could_go(self) -> None:
        """One could go if it is first of its key, its cap lets it, no such one has an earlier round, and it fits."""
        could = {key: line[0] for key, line in self._lines().items() if self._cap_lets_in(line[0].size, key)}
        head = self.limiter._newcomers.head
        assert (head is not None) == bool(could)
        if head is None:
            return
        assert could[head.key] is head
        assert not self._fits(head.size)
        if (shares := self.limiter._shares) is not None:
            assert self._round(shares, head.key) == min(self._round(shares, key) for key in could)

    @invariant()
    def keys_are_kept_only_while_they_wait_or_owe(self) -> None:
        shares = self.limiter._shares
        if shares is None:
            return
        waiting = [share for share in shares._shares.values() if share.head is not None]
        assert sum(len(share) for share in waiting) == self.limiter.queue_size
        assert all(isinstance(share.queue, Ring) or share.queue is shares._parked for share in waiting)
        assert len(waiting) == shares.keys_waiting == self.limiter.statistics().keys_waiting
        assert len(shares._shares) - len(waiting) == len(shares._idle)
        assert sorted(shares._order) == sorted(shares._rings)
        if not waiting:
            assert not shares._shares
            assert not shares._rings

    @invariant()
    def each_stands_in_its_own_line_in_the_order_of_arrival(self) -> None:
        shares = self.limiter._shares
        if shares is None:
            return
        for key, line in self._lines().items():
            assert [waiter.key for waiter in line] == [key] * len(line)
            assert [waiter.arrival for waiter in line] == sorted(waiter.arrival for waiter in line)

    # What the machine with one line has other answers for

    def may_be_let_in_at_once(self, n: int, key: str | None) -> bool:
        shares = self.limiter._shares
        if shares is None or n == 0:
            return super().may_be_let_in_at_once(n, key)
        head = self.limiter._newcomers.head
        goes_first = head is None or self._round(shares, key) < self._round(shares, head.key)
        return key not in self._lines() and goes_first and self._cap_lets_in(n, key) and self._fits(n)

    def line_of(self, request: Request) -> object:
        if request.holder is not None or self.order == ONE_LINE:
            return super().line_of(request)
        if self.order == NO_ORDER:
            return id(request)
        return request.claim and request.claim.key, "newcomers"

    def _collect(self) -> None:
        super()._collect()
        self.order = BY_KEY if self.limiter.share_by_key else ONE_LINE

    # Helpers

    def _lines(self) -> dict[object, list[Newcomer]]:
        """Return those who wait by key, in the order in which they stand; one line without shares."""
        shares = self.limiter._shares
        if shares is not None:
            return {key: _members(share) for key, share in shares._shares.items() if share.head is not None}
        newcomers = self.limiter._newcomers
        assert not isinstance(newcomers, Shares)
        line = _members(newcomers)
        return {line[0].key: line} if line else {}

    def _everybody_waiting(self) -> list[Newcomer]:
        return [waiter for line in self._lines().values() for waiter in line]

    def _cap_lets_in(self, n: int, key: object) -> bool:
        limit = self.limiter.limit
        held = self.limiter._ledger.held_by(key)
        uncapped = not self.limiter.share_by_key or limit <= 0 or self.cap == 100
        return uncapped or held == 0 or held + n <= limit * self.cap // 100

    def _round(self, shares: Shares, key: object) -> int:
        share = shares._shares.get(key)
        if share is not None and isinstance(share.queue, Ring):
            return share.spent // shares._quantum
        return shares._round_of_joining(share)


def _members(line: "Share | object") -> list[Newcomer]:
    found, waiter = [], getattr(line, "head", None)
    while waiter is not None:
        found.append(waiter)
        waiter = waiter.next
    return found


SharesMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestShares = SharesMachine.TestCase
