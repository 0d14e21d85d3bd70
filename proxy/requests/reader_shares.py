"""A part of direct memory for the answers to unproven readers: clients that have not shown yet that they read.

Before a client has taken some bytes, nothing tells a client that reads from a client that never will. So unproven
readers share a part of direct memory, and the rest is always free for those that read. Rules:
- A reader is proven while it takes bytes: more than a receive buffer holds, since it last stood still
  (`proxy.net.output.Output.reads`).
- An answer for an unproven reader takes its share before direct memory, and has it until its client is proven or the
  answer is over. An answer that fits into the socket's send buffer needs no share: such an answer waits for no reader.
- A list that can go to disk needs no share while the disk has room for all that its key may have in direct memory.
- A schema never goes to disk, and its client may ask for many at once. So a proven reader, too, takes shares for those
  that come while an earlier answer is under way: of what it has without a share it never holds more than one.

A share is taken after heap memory and before direct memory, and those that hold direct memory wait for neither.
"""

from collections.abc import Hashable
from typing import Protocol

from limiter.clock import Clock
from limiter.observer import LimiterObserver
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from proxy.net.output import Output
from proxy.net.spill.judge import LEAST_REST_BYTES


class SpaceForLists(Protocol):
    """The space on the disk for lists (`proxy.net.spill.space.SpillSpace`)."""

    def has_room_for(self, memory_bytes: int, key: Hashable) -> bool:
        """Return whether the disk takes all that `key` may have in a memory of that size."""


class ReaderShares:
    """The share of direct memory for unproven readers; `disk` is None if no list goes to disk."""

    def __init__(self, direct: AsyncSemaphore, observer: LimiterObserver, clock: Clock) -> None:
        self.disk: SpaceForLists | None = None
        self.in_force = False
        self._direct = direct
        self.semaphore = AsyncSemaphore(
            "direct for unproven readers",
            0,
            max_queue=direct.max_queue,
            timeout_seconds=direct.timeout_seconds,
            clock=clock,
            observer=observer,
        )

    def apply(self, percent: int) -> None:
        """Apply a changed share, or changed limits of direct memory; held shares stay held. 100: there is no rule."""
        direct, share = self._direct, self.semaphore
        self.in_force = direct.limit > 0 and percent < 100
        share.max_queue, share.timeout_seconds = direct.max_queue, direct.timeout_seconds
        # Without the rule, answers that wait already get their shares at once: 0 is no limit.
        share.set_limit(max(1, direct.limit * percent // 100) if self.in_force else 0)

    def holds_for_list(self, output: Output, size: int | None, key: Hashable) -> bool:
        """Return whether a list needs a share where the rule is in force; `size` is probable, None if unknown."""
        if output.reads or (size is not None and output.has_room_for(size)):
            return False
        if self.disk is None or (size is not None and size < LEAST_REST_BYTES):
            return True
        return not self.disk.has_room_for(self._direct.limit, key)

    def for_answer(self, output: Output, key: Hashable) -> "AnswerShare":
        """Return the share of an answer that never goes to disk; the caller ends it."""
        return AnswerShare(self, output, key)


class AnswerShare:
    """The share of an answer for one client, which has a size when the answer begins to arrive."""

    __slots__ = ("_expected", "_key", "_output", "_permit", "_shares", "_waited")

    def __init__(self, shares: ReaderShares, output: Output, key: Hashable) -> None:
        self._shares = shares
        self._output = output
        self._key = key
        self._permit: Permit | None = None
        # The bytes that the output has been told to expect.
        self._expected = 0
        self._waited = False

    def try_take(self, size: int, memory_bytes: int) -> bool:
        """Take what an answer of `size` bytes needs if that is possible now, else return False."""
        output, shares = self._output, self._shares
        self._expect(0)
        if not shares.in_force:
            return True
        if self._permit is not None:
            return self._permit.try_update(memory_bytes)
        if output.has_room_for(size) or (output.reads and not output.busy):
            self._expect(size)
            return True
        self._permit = shares.semaphore.try_acquire(memory_bytes, key=self._key)
        return self._permit is not None

    async def wait(self, memory_bytes: int) -> None:
        """Wait until the answer may be asked for again; raises PermitAcquireError.

        A client that reads takes its earlier answers first. If others have come meanwhile, this answer waits for a
        share, so that no client asks a broker again and again.
        """
        if self._permit is not None:
            await self._permit.update(memory_bytes)
        elif self._output.reads and not self._waited:
            self._waited = True
            await self._output.earlier_bodies()
        else:
            self._permit = await self._shares.semaphore.acquire(memory_bytes, key=self._key)

    def end(self) -> None:
        """Release the share: the client is proven, or the answer is over. A second call does nothing."""
        self._expect(0)
        if self._permit is not None:
            self._permit.release()

    def _expect(self, size: int) -> None:
        self._output.expected_bytes += size - self._expected
        self._expected = size
