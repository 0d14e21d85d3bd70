"""A part of direct memory for the answers to unproven readers: clients that have not shown yet that they read.

Before a client has taken some bytes, nothing tells a client that reads from a client that never will. So unproven
readers share a part of direct memory, and the rest is always free for those that read. Rules:
- A reader is proven while it takes bytes: more than a receive buffer holds, since it last stood still or was slow
  (`proxy.net.output.Output.reads`).
- Both parts of the share are given in turns by network, or by the keys of `topicListFairness` where that has some.
- An answer for an unproven reader takes its share before direct memory, and has it until its client is proven or the
  answer is over. An answer that fits into the socket's send buffer needs no share: such an answer waits for no reader.
- A list that can go to disk counts half while the disk has room for all that its key may have in direct memory: such
  lists leave memory at the rate of the disk, but those that read must not wait for a disk.
- Half of that part is for clients that are *awake*: when an unproven reader would have to wait for the other half, its
  client gets a PING, and a PONG brings the answer to the half for those awake. So those that read nothing keep no
  newcomer waiting. A client that then stands still, or is slow, gives its share back: its list is *owed*
  (`proxy.net.write_watch`), like that of any client that has shown that it reads, and stands still.
- The window of a list over HTTP takes a share of those awake: its client answers no PING, but it loses the share as
  soon as it stands still (`proxy.web.forward.topic_list_permits`).
- An eighth of the share of those awake is kept for networks that hold nothing of it: so one network that holds all the
  rest, and stands, keeps no other waiting.
- A schema never goes to disk, and its client may ask for many at once. So a proven reader, too, takes shares for those
  that come while an earlier answer is under way: of what it has without a share it never holds more than one.

A share is taken after heap memory and before direct memory, and those that hold direct memory wait for neither.
"""

import asyncio
from collections.abc import Coroutine, Hashable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from limiter.errors import PermitAcquireError
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from proxy.net.output import Output
from proxy.net.spill.judge import LEAST_REST_BYTES

if TYPE_CHECKING:
    from proxy.net.spill.space import SpillSpace

# The share has two halves, one for clients that are awake; as much of direct memory may be owed while others wait.
AWAKE_PART: Final = 2
# Networks that hold nothing have one of so many parts of the share of those awake to themselves.
KEPT_OF: Final = 8
# A list that can go to disk takes this part of its size of the share of those that are silent: with half of the share,
# a quarter of direct memory, such lists hold half of it, those awake a quarter, and proven readers have the rest.
ON_DISK_PART: Final = 2
# So many clients get a PING in one iteration of the loop: a group of equal requests may have thousands of clients.
PINGS_A_TURN: Final = 64
T = TypeVar("T")


class Call:
    """A wait that ends early when one of the clients answers a PING; `answered` is what a PONG calls."""

    def __init__(self, outputs: Iterable[Output]) -> None:
        # The clients that have been asked, and those that are asked in the next iterations of the loop.
        self._asked: dict[Output, None] = {}
        self._to_ask = dict.fromkeys(outputs)
        self._clock: asyncio.Timeout | None = None

    async def unless_answered(self, wait: Coroutine[Any, Any, T]) -> T | None:
        """Return what `wait` brings, or None, with `wait` cancelled, when a client answers before."""
        try:
            async with asyncio.timeout(None) as self._clock:
                self._ask()
                return await wait
        except TimeoutError:
            if self._clock is None or not self._clock.expired():
                raise
            return None
        finally:
            wait.close()
            self._to_ask.clear()
            for output in self._asked:
                output.uncall(self._answered)
            # The clock knows its task, and a cancelled task knows this frame.
            self._clock = None

    def add(self, output: Output) -> None:
        """Ask one more client."""
        if output not in self._asked and output not in self._to_ask:
            self._to_ask[output] = None
            if len(self._to_ask) == 1:
                self._ask()

    def _ask(self) -> None:
        try:
            for output in [*islice(self._to_ask, PINGS_A_TURN)]:
                del self._to_ask[output]
                self._asked[output] = None
                output.call(self._answered)
        finally:
            # The others are asked although a connection raises.
            if self._to_ask:
                asyncio.get_running_loop().call_soon(self._ask)

    def _answered(self) -> None:
        clock = self._clock
        if clock is not None and not clock.expired():
            clock.reschedule(0)


class ReaderShares:
    """The share of direct memory for unproven readers; `disk` is None if no list goes to disk.

    `semaphore` is for all of them, `awake` for those that have answered a PING while they waited for the first.
    """

    def __init__(self, direct: AsyncSemaphore, disk: "SpillSpace | None" = None) -> None:
        self._disk = disk
        self.in_force = False
        self._direct = direct
        self.semaphore = direct.share("direct for unproven readers")
        self.awake = direct.share("direct for readers that answer a PING", kept_of=KEPT_OF)

    def apply(self, percent: int) -> None:
        """Apply a changed share, or changed limits of direct memory; held shares stay held. 100: there is no rule."""
        self.in_force = self._direct.limit > 0 and percent < 100
        for share in (self.semaphore, self.awake):
            # Without the rule, answers that wait already get their shares at once: 0 is no limit.
            share.part = percent / 100 / AWAKE_PART if self.in_force else 0
            share.follow()

    @property
    def held(self) -> int:
        """Return what unproven readers hold."""
        return self.semaphore.held + self.awake.held

    @property
    def short(self) -> bool:
        """Return whether an answer waits for a share."""
        return self.semaphore.short or self.awake.short

    @property
    def most_owed(self) -> int | None:
        """Return how much direct memory clients that stand still may hold without a share; None: no bound."""
        return self.awake.limit if self.in_force else None

    def that_refused(self, error: Exception) -> AsyncSemaphore | None:
        """Return the share that refused with `error`, or None."""
        limiter = error.limiter if isinstance(error, PermitAcquireError) else None
        return next((share for share in (self.semaphore, self.awake) if share.name == limiter), None)

    def ends_when_standing(self, permit: Permit) -> bool:
        """Return whether a share ends when its client stands still: it was given because the client was awake."""
        return permit.owner is self.awake

    def holds_for_list(self, output: Output, size: int | None) -> bool:
        """Return whether a list needs a share where the rule is in force; `size` is probable, None if unknown."""
        return not (output.reads or (size is not None and output.has_room_for(size)))

    def share_bytes(self, size: int, key: Hashable) -> int:
        """Return the share of a list of `size` bytes: half of them if the list can go to disk."""
        if self._disk is None or size < LEAST_REST_BYTES or not self._disk.has_room_for(self._direct.limit, key):
            return size
        return size // ON_DISK_PART

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
            shares = self._shares
            call = Call([self._output])
            share = await call.unless_answered(shares.semaphore.acquire(memory_bytes, key=self._key))
            self._permit = share or await shares.awake.acquire(memory_bytes, key=self._key)

    @property
    def held(self) -> bool:
        """Return whether the answer has a share now."""
        return self._permit is not None and not self._permit.released

    def proven(self) -> None:
        """Release the share: the client reads."""
        self.end()

    def stands(self) -> None:
        """Release a share that was given because the client was awake."""
        if self._permit is not None and self._shares.ends_when_standing(self._permit):
            self._permit.release()

    def end(self) -> None:
        """Release the share: the client is proven, or the answer is over. A second call does nothing."""
        self._expect(0)
        if self._permit is not None:
            self._permit.release()

    def _expect(self, size: int) -> None:
        self._output.expected_bytes += size - self._expected
        self._expected = size
