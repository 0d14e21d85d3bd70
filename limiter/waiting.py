"""Own how one that must wait joins the queue of a semaphore and how it leaves without a grant; grant nothing.

Rule: whoever leaves, frees its place in that moment and lets the others be looked at (`_serve`).
"""

import asyncio
from abc import abstractmethod
from collections.abc import Hashable

from limiter.clock import Clock
from limiter.deadlines import Deadlines
from limiter.errors import PermitAcquireError, PermitAcquireQueueFull, PermitAcquireTimeout
from limiter.ledger import Ledger
from limiter.observer import LimiterObserver, Tally
from limiter.permit import Permit
from limiter.queue import Growth, Newcomer, Waiter, WaiterQueue
from limiter.readings import Readings

__all__ = ["Waiting"]


class Waiting(Readings):
    """The queues of a semaphore, their bounds and their deadlines."""

    __slots__ = ()

    def __init__(
        self,
        name: str,
        limit: int,
        max_queue: int,
        timeout_seconds: float,
        clock: Clock,
        observer: LimiterObserver | None,
    ) -> None:
        self.name = name
        self.max_queue = max_queue
        self.timeout_seconds = timeout_seconds
        self._clock = clock
        self._closed = False
        self._ledger = Ledger(limit)
        self._tally = Tally(observer)
        self._shares = None
        self._newcomers = WaiterQueue(self._leave)
        self._growers = WaiterQueue(self._leave)
        self._deadlines = Deadlines(clock, self._expire)

    @abstractmethod
    def _serve(self) -> None:
        """Serve all who may go now."""

    def _queue_newcomer(self, n: int, key: Hashable, timeout_seconds: float | None) -> Newcomer:
        now, deadline = self._patience(n, timeout_seconds)
        if len(self._newcomers) >= self.max_queue > 0:
            self._tally.count_rejected()
            raise self._refusal(PermitAcquireQueueFull, n)
        waiter = Newcomer(asyncio.get_running_loop(), n, now, deadline, key)
        self._newcomers.push(waiter)
        self._deadlines.watch(waiter)
        self._tally.count_queued()
        return waiter

    def _queue_growth(self, permit: Permit, n: int, timeout_seconds: float | None) -> Growth:
        now, deadline = self._patience(n, timeout_seconds)
        waiter = permit.growth = Growth(asyncio.get_running_loop(), n, now, deadline, permit)
        self._growers.push(waiter)
        self._deadlines.watch(waiter)
        self._tally.count_queued()
        return waiter

    def _patience(self, n: int, timeout_seconds: float | None) -> tuple[float, float]:
        """Return now and the deadline; raise PermitAcquireTimeout for who cannot wait at all."""
        timeout = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        if timeout <= 0:
            self._tally.count_timed_out(0.0)
            raise self._refusal(PermitAcquireTimeout, n)
        now = self._clock.time()
        return now, now + timeout

    def _move(self, waiter: Newcomer, key: Hashable) -> None:
        if self._shares is None:
            waiter.key = key
            return
        self._shares.move(waiter, key)
        self._serve()

    def _unlink(self, waiter: Waiter) -> None:
        assert waiter.queue is not None, "waiter has left already"
        waiter.queue.remove(waiter)
        self._deadlines.forget(waiter)

    def _refuse(self, waiter: Waiter, kind: type[PermitAcquireError]) -> None:
        if isinstance(waiter, Growth):
            waiter.permit.growth = None
        waiter.set_result(self._refusal(kind, waiter.size))

    def _expire(self, waiter: Waiter, now: float) -> None:
        """End a wait whose deadline has passed; `Deadlines` has dropped the waiter before it calls this."""
        assert waiter.queue is not None, "waiter has left already"
        if isinstance(waiter, Newcomer) and waiter.patient_until > now:
            waiter.deadline = waiter.patient_until
            self._deadlines.watch(waiter)
            return
        waiter.queue.remove(waiter)
        self._refuse(waiter, PermitAcquireTimeout)
        self._tally.count_timed_out(now - waiter.queued_at)
        self._serve()

    def _leave(self, waiter: Waiter) -> None:
        """Free the place of a waiter in the moment of its cancel, and serve those it held up."""
        self._unlink(waiter)
        if isinstance(waiter, Growth):
            waiter.permit.growth = None
        self._tally.count_cancelled()
        self._serve()

    def _refusal(self, kind: type[PermitAcquireError], asked: int) -> PermitAcquireError:
        return kind(self.name, self._ledger.limit, self._ledger.held, asked, len(self._newcomers))
