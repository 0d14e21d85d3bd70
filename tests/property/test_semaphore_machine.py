"""Drive the semaphore with generated schedules of real tasks on virtual time; check the books after each step.

A private loop is stepped by hand: most rules do not let tasks run, so that grants, cancels, timeouts and
releases meet in one tick. At the end everything is drained by releases alone, without time and without
cancelling, and nobody may be left: that is the freedom from deadlock.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import limiter.semaphore
from limiter import (
    AsyncSemaphore,
    Permit,
    PermitAcquireAlreadyClosed,
    PermitAcquireCancelled,
    PermitAcquireError,
    PermitAcquireQueueFull,
    PermitAcquireTimeout,
    PermitBusy,
)
from limiter.semaphore import MOST_AT_ONCE
from limiter.statistics import WaiterStatistics
from tests.support.loops.clock import ManualClock

LARGEST = 13
SIZES = st.sampled_from([0, 1, 2, 3, 4, 5, 5, 6, 7, 9, 10, LARGEST])
LIMITS = st.sampled_from([10, 10, 10, 12, 6, 3, 20, 0])
TIMEOUTS = st.sampled_from([None, None, None, 1.0, 4.0, 60.0, 0.0])
PICK = st.integers(0, 1000)
AT_ONCE = st.sampled_from([MOST_AT_ONCE, 1, 2])
UNLIMITED = 10**9


@dataclass
class Request:
    """An acquire or an update under way."""

    task: "asyncio.Task[Permit]"
    size: int
    timeout: float
    holder: "Holder | None" = None  # the one that grows; None for an acquire
    started_at: float | None = None
    key: str | None = None


@dataclass
class Holder:
    """A permit and the size that the model says it has."""

    permit: Permit
    size: int
    growth: Request | None = field(default=None, repr=False)


class SemaphoreMachine(RuleBasedStateMachine):
    """The semaphore beside a model that knows only who was told what."""

    @initialize(limit=LIMITS, max_queue=st.sampled_from([0, 1, 3]), at_once=AT_ONCE)
    def begin(self, limit: int, max_queue: int, at_once: int = MOST_AT_ONCE, kept_of: int = 0) -> None:
        limiter.semaphore.MOST_AT_ONCE = self.at_once = at_once
        self.loop = asyncio.new_event_loop()
        # No two requests come at one moment, as on a machine.
        self.clock = ManualClock(tick=2.0**-20)
        self.limiter = AsyncSemaphore(
            "heap", limit, max_queue=max_queue, timeout_seconds=10.0, clock=self.clock, kept_of=kept_of
        )
        self.requests: list[Request] = []  # in the order of arrival
        self.holders: list[Holder] = []
        self.settled = True
        self.largest_limit = limit if limit > 0 else UNLIMITED
        self.ceiling = limit if limit > 0 else UNLIMITED
        self.queue_ceiling = max_queue if max_queue > 0 else UNLIMITED

    # Rules

    @rule(n=SIZES, timeout=TIMEOUTS, key=st.sampled_from(["a", "b", None]), tick=st.booleans())
    def acquire(self, n: int, timeout: float | None, key: str | None, tick: bool) -> None:
        coroutine = self.limiter.acquire(n, timeout_seconds=timeout, key=key)
        self._start(coroutine, n, timeout, key=key)
        self._step(tick)

    @rule(n=SIZES, key=st.sampled_from(["a", "b", None]))
    def try_acquire(self, n: int, key: str | None) -> None:
        may = self.may_be_let_in_at_once(n, key)
        try:
            permit = self.limiter.try_acquire(n, key=key)
        except PermitAcquireAlreadyClosed:
            assert self.limiter.closed
            return
        assert may is None or (permit is not None) is may
        if permit is not None:
            self.holders.append(Holder(permit, permit.size))

    @precondition(lambda self: self.holders)
    @rule(pick=PICK, tick=st.booleans())
    def release(self, pick: int, tick: bool) -> None:
        holder = self.holders.pop(pick % len(self.holders))
        holder.permit.release()
        holder.permit.release()
        self._step(tick)

    @precondition(lambda self: self.holders)
    @rule(pick=PICK, n=SIZES, timeout=TIMEOUTS, tick=st.booleans())
    def update(self, pick: int, n: int, timeout: float | None, tick: bool) -> None:
        holder = self.holders[pick % len(self.holders)]
        if holder.growth is None:
            coroutine = self.limiter.update(holder.permit, n, timeout_seconds=timeout)
            holder.growth = self._start(coroutine, n, timeout, holder=holder)
        self._step(tick)

    @precondition(lambda self: self.holders)
    @rule(n=SIZES, timeout=TIMEOUTS)
    def update_all(self, n: int, timeout: float | None) -> None:
        for pick in range(len(self.holders)):
            self.update(pick, n, timeout, False)
        self._step(True)

    @precondition(lambda self: self.holders)
    @rule(pick=PICK, n=SIZES, tick=st.booleans())
    def try_update(self, pick: int, n: int, tick: bool) -> None:
        holder = self.holders[pick % len(self.holders)]
        try:
            if self.limiter.try_update(holder.permit, n):
                holder.size = n
        except PermitBusy:
            assert holder.growth is not None
        except PermitAcquireAlreadyClosed:
            assert self.limiter.closed
            assert n > holder.permit.size
        self._step(tick)

    @precondition(lambda self: self.requests)
    @rule(pick=PICK, tick=st.booleans())
    def cancel(self, pick: int, tick: bool) -> None:
        self.requests[pick % len(self.requests)].task.cancel()
        self._step(tick)

    @rule(n=SIZES, timeouts=st.lists(TIMEOUTS, min_size=2, max_size=4), sizes=st.lists(SIZES, min_size=4, max_size=4))
    def burst(self, n: int, timeouts: list[float | None], sizes: list[int]) -> None:
        self.acquire(n, None, "a", False)
        for timeout, size in zip(timeouts, sizes, strict=False):
            self.acquire(size, timeout, "b", False)
        self._step(True)

    @precondition(lambda self: self.requests and self.holders)
    @rule(pick=PICK, request=PICK, cancel_first=st.booleans())
    def release_and_cancel_meet(self, pick: int, request: int, cancel_first: bool) -> None:
        task = self.requests[request % len(self.requests)].task
        holder = self.holders.pop(pick % len(self.holders))
        if cancel_first:
            task.cancel()
        holder.permit.release()
        task.cancel()
        self._step(True)

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0, 10.0]), tick=st.booleans())
    def expire(self, seconds: float, tick: bool) -> None:
        self.clock.advance(seconds)
        self._step(tick)

    @rule(limit=LIMITS, tick=st.booleans())
    def set_limit(self, limit: int, tick: bool) -> None:
        self.ceiling = max(limit, self.limiter.held) if limit > 0 else UNLIMITED
        self.largest_limit = max(self.largest_limit, limit if limit > 0 else UNLIMITED)
        self.limiter.set_limit(limit)
        self._step(tick)

    @rule(max_queue=st.sampled_from([0, 1, 3]))
    def set_max_queue(self, max_queue: int) -> None:
        self.limiter.max_queue = max_queue
        self.queue_ceiling = max(max_queue, self.limiter.queue_size) if max_queue > 0 else UNLIMITED

    @precondition(lambda self: len(self.requests) > 5)
    @rule(tick=st.booleans())
    def close(self, tick: bool) -> None:
        self.limiter.close()
        self._step(tick)

    @rule()
    def tick(self) -> None:
        self._step(True)

    # Invariants, after every step

    @invariant()
    def held_is_within_the_limit_but_for_one_growth_and_a_lowered_limit(self) -> None:
        held, limit = self.limiter.held, self.limiter.limit if self.limiter.limit > 0 else UNLIMITED
        assert held <= self.ceiling + LARGEST, f"{self.limiter!r}, ceiling {self.ceiling}"
        self.ceiling = max(limit, min(self.ceiling, held))

    @invariant()
    def nobody_waits_who_could_go(self) -> None:
        newcomers = self.newcomers()
        if newcomers and self.all_are_served:
            assert not self._fits(newcomers[0].size)

    @invariant()
    def growth_waits_only_above_the_limit(self) -> None:
        """One permit at a time may overshoot: the others wait until it has come back."""
        if self.limiter.growers_waiting and self.all_are_served:
            assert self.limiter.held > self.limiter.limit > 0

    @invariant()
    def queue_is_bounded(self) -> None:
        assert self.limiter.queue_size <= self.queue_ceiling
        if self.limiter.max_queue > 0:
            self.queue_ceiling = max(self.limiter.max_queue, self.limiter.queue_size)

    @invariant()
    def there_is_one_timer_at_most(self) -> None:
        assert self.clock.pending <= 1

    @invariant()
    def books_are_the_sum_of_all_permits(self) -> None:
        if not self.settled:
            return
        assert [holder.permit.size for holder in self.holders] == [holder.size for holder in self.holders]
        assert self.limiter.held == sum(holder.size for holder in self.holders)
        by_key: dict[object, int] = {}
        for holder in self.holders:
            if holder.permit.key is not None and holder.size:
                by_key[holder.permit.key] = by_key.get(holder.permit.key, 0) + holder.size
        assert dict(self.limiter.top_holders(9)) == by_key

    @invariant()
    def places_are_the_tasks_that_wait(self) -> None:
        if not self.settled:
            return
        growing = sum(request.holder is not None for request in self.requests)
        assert self.limiter.growers_waiting == growing
        assert self.limiter.queue_size == len(self.requests) - growing

    @invariant()
    def nobody_waits_past_its_deadline(self) -> None:
        for request in self.requests:
            if self.settled and request.started_at is not None:
                assert self.clock.time() < request.started_at + request.timeout

    # The end

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        try:
            self._step(True)
            self._drain_by_releases_alone()
            assert self.limiter.held == 0
            assert (self.limiter.queue_size, self.limiter.growers_waiting) == (0, 0)
            assert self.limiter.top_holders(9) == []
        finally:
            limiter.semaphore.MOST_AT_ONCE = MOST_AT_ONCE
            for request in self.requests:
                request.task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()

    def _drain_by_releases_alone(self) -> None:
        for _ in range(2 * len(self.requests) + 2):
            for holder in [holder for holder in self.holders if holder.growth is None]:
                self.holders.remove(holder)
                holder.permit.release()
            self._step(True)
        assert self.requests == [], f"stuck: {self.limiter!r}"
        assert self.holders == []

    # What shares by key have other answers for

    def may_be_let_in_at_once(self, n: int, key: str | None) -> bool | None:
        """Return whether an acquire goes before all that wait; None if that depends on what they have had."""
        return n == 0 or (self.limiter.queue_size == 0 and self._fits(n))

    def line_of(self, request: Request) -> object:
        """Return what those have in common who must not overtake each other."""
        return "growers" if request.holder is not None else "newcomers"

    # Helpers

    @property
    def all_are_served(self) -> bool:
        """Return whether no step of the loop is left to serve those whom the last one did not."""
        return self.settled or self.at_once == MOST_AT_ONCE

    def _fits(self, n: int) -> bool:
        limit, held = self.limiter.limit, self.limiter.held
        return limit <= 0 or held + n <= limit or (n > limit and held == 0)

    def newcomers(self) -> list[WaiterStatistics]:
        """Return the acquires that wait, in the order of service."""
        return [each for step in self.limiter.waiters(1000, 1000) for each in step if not each.grows]

    def _start(
        self,
        coroutine: Coroutine[Any, Any, Permit],
        size: int,
        timeout: float | None,
        *,
        holder: Holder | None = None,
        key: str | None = None,
    ) -> Request:
        limit = self.limiter.timeout_seconds if timeout is None else timeout
        request = Request(self.loop.create_task(coroutine), size, limit, holder, key=key)
        self.requests.append(request)
        return request

    def _step(self, tick: bool) -> None:
        self.settled = False
        if tick:
            for request in self.requests:
                if request.started_at is None:
                    request.started_at = self.clock.time()
            self.loop.run_until_complete(_settle(4 + len(self.requests)))
            self._collect()
            self.settled = True

    def _collect(self) -> None:
        """Note who got what, and that nobody was overtaken."""
        waiting = [request for request in self.requests if not request.task.done()]
        lines_that_wait = set()
        for request in self.requests:
            line = self.line_of(request)
            if not request.task.done():
                lines_that_wait.add(line)
            elif self._outcome_of(request) and request.holder is None and request.size > 0:
                assert line not in lines_that_wait, "a newcomer was overtaken"
        self.requests = waiting

    def _outcome_of(self, request: Request) -> bool:
        holder = request.holder
        if holder is not None:
            holder.growth = None
        if request.task.cancelled():
            return False
        error = request.task.exception()
        if error is not None:
            self._judge(request, error)
            return False
        permit = request.task.result()
        if holder is not None:
            assert permit is holder.permit
            assert not permit.released
            holder.size = request.size
            return True
        assert permit.requested == request.size
        assert permit.key == request.key
        assert permit.size == request.size or 0 < permit.size < request.size
        assert permit.size <= self.largest_limit, "not clamped"
        self.holders.append(Holder(permit, permit.size))
        return True

    def _judge(self, request: Request, error: BaseException) -> None:
        holder = request.holder
        released = holder is not None and holder.permit.released
        assert isinstance(error, PermitAcquireError) or released, error
        if isinstance(error, PermitAcquireTimeout):
            assert request.started_at is not None
            assert self.clock.time() >= request.started_at + request.timeout
        elif isinstance(error, PermitAcquireQueueFull):
            assert holder is None
        elif isinstance(error, PermitAcquireAlreadyClosed):
            assert self.limiter.closed
        elif isinstance(error, PermitAcquireCancelled):
            assert released


async def _settle(steps: int) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)


SemaphoreMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestSemaphore = SemaphoreMachine.TestCase
