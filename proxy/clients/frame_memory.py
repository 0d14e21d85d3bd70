"""The permit of a large frame: one of each memory that the frame takes, in their order.

After CONNECTED a frame takes a share and, if it is no question, direct memory then; before CONNECTED the memory of
handshakes only. All frames together hold no more direct memory than the share has, so no topic list waits for more
than that.

A frame takes at least its `place` of the share, before its bytes have come. Otherwise the share would let in as many
frames as it has room for their first bytes, and all of them would wait to grow.

Who waits for whom: all frames take the memories in the same order, in each of them growth goes before newcomers and one
growth may overshoot (docs/adr/0003). Topic lists, which hold direct memory too, never wait for a share of frames; those
whose question was large hold a share, and no direct memory, while they wait. Two frames can wait for each other, one
that overshoots the share and one that overshoots direct memory and grows again: until the time of the first is over.
"""

from collections.abc import Hashable, Sequence

from limiter.clock import Clock
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore


class FramePermit:
    """The permits of a frame; `memories` are taken in their order, and charged to the key beside each.

    `place` is the least that is taken of the first memory.
    """

    __slots__ = ("_memories", "_permits", "_place")

    def __init__(self, memories: Sequence[tuple[AsyncSemaphore, Hashable]], place: int) -> None:
        self._memories = memories
        self._place = place
        # Permits of the first memories: those that the frame has had its turn in.
        self._permits: list[Permit] = []

    @property
    def size(self) -> int:
        """Return the bytes that may be stored: those of the last memory."""
        return self._permits[-1].size if len(self._permits) == len(self._memories) else 0

    def try_grow(self, size: int) -> bool:
        """Take `size` bytes in all of each memory, as far as nothing has to wait; return whether nothing had to."""
        for number, (memory, key) in enumerate(self._memories):
            wanted = size if number else max(size, self._place)
            if number == len(self._permits):
                permit = memory.try_acquire(wanted, key=key)
                if permit is None:
                    return False
                self._permits.append(permit)
            elif self._permits[number].size < wanted and not self._permits[number].try_update(wanted):
                return False
        return True

    async def grow(self, size: int, clock: Clock, timeout_seconds: float) -> None:
        """Wait until the frame has `size` bytes of each memory, `timeout_seconds` in all; raise PermitAcquireError.

        After an error the frame holds what it has got so far.
        """
        deadline = clock.time() + timeout_seconds
        for number, (memory, key) in enumerate(self._memories):
            wanted, seconds = size if number else max(size, self._place), deadline - clock.time()
            if number == len(self._permits):
                self._permits.append(await memory.acquire(wanted, key=key, timeout_seconds=seconds))
            elif self._permits[number].size < wanted:
                await self._permits[number].update(wanted, timeout_seconds=seconds)

    def release(self) -> None:
        """Release everything; a second call does nothing."""
        # The last memory first: who is granted a share next asks for that memory.
        for permit in reversed(self._permits):
            permit.release()
