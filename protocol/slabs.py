"""Hold a large body as slabs of at most 256 KiB: each is one read and one decoding step.

Slabs make the memory of a body equal to what its permit counts (nothing is over-allocated or copied to grow), keep
every step of the event loop short whatever the body's size, and return to one small pool when their last byte has
left.
"""

from collections.abc import Iterator
from typing import Final

SLAB_BYTES: Final = 256 * 1024
# Object header and allocator rounding of one bytearray, its place in the list, and its share of a memoryview.
SLAB_OVERHEAD_BYTES: Final = 256


class SlabPool:
    """Keep up to `spare` free slabs for reuse, so that a busy proxy does not fault new pages in for every list."""

    __slots__ = ("_free", "_spare", "_taken")

    def __init__(self, spare: int = 16) -> None:
        self._free: list[bytearray] = []
        self._spare = spare
        self._taken = False

    @property
    def free_bytes(self) -> int:
        """Count the bytes of slabs that are kept for reuse."""
        return len(self._free) * SLAB_BYTES

    def set_spare(self, spare: int) -> None:
        """Change how many free slabs are kept; those beyond are let go."""
        self._spare = spare
        del self._free[spare:]

    def take(self) -> bytearray:
        """Give a slab with unspecified contents."""
        self._taken = True
        return self._free.pop() if self._free else bytearray(SLAB_BYTES)

    def trim(self) -> None:
        """Let go of the free slabs if none was taken since the last call."""
        if not self._taken:
            self._free.clear()
        self._taken = False

    def give(self, slab: bytearray) -> None:
        """Take back a slab that nobody reads any more."""
        if len(slab) == SLAB_BYTES and len(self._free) < self._spare:
            self._free.append(slab)


class SlabBody:
    """Store a body of a known size; a subclass may look at every slab as it becomes full."""

    __slots__ = ("_filled", "_place", "_pool", "_slabs", "_unallocated", "size")

    def __init__(self, size: int, pool: SlabPool) -> None:
        self.size = size
        self._pool = pool
        self._slabs: list[bytearray] = []
        self._unallocated = size
        self._place = memoryview(b"")
        self._filled = 0

    @staticmethod
    def memory_bytes(size: int) -> int:
        """Count the memory that a body of `size` bytes occupies."""
        return size + SLAB_OVERHEAD_BYTES * (-(-size // SLAB_BYTES))

    def writable(self) -> memoryview:
        """Give the free part of the current slab; empty only when the body is complete."""
        if self._filled == len(self._place) and self._unallocated:
            size = min(self._unallocated, SLAB_BYTES)
            self._unallocated -= size
            slab = self._pool.take() if size == SLAB_BYTES else bytearray(size)
            self._slabs.append(slab)
            self._place = memoryview(slab)
            self._filled = 0
        return self._place[self._filled :]

    def advance(self, count: int) -> None:
        """Book `count` bytes that were written to the place last given."""
        self._filled += count
        if self._filled == len(self._place):
            self.slab_filled(self._place)

    def slab_filled(self, slab: memoryview) -> None:
        """Look at a slab that is now full (nothing to do for an opaque body)."""

    def slices(self) -> list[memoryview]:
        """List the body's slabs in order, for writing."""
        return [memoryview(slab) for slab in self._slabs]

    def consume(self) -> Iterator[memoryview]:
        """Give the slabs one by one, for writing; asking for the next says that the last one's bytes have left.

        A slab goes back to the pool at that moment. One that was given when the iterator is dropped does not: its
        bytes may still be on their way.
        """
        self._place = memoryview(b"")
        slabs, self._slabs = self._slabs[::-1], []
        while slabs:
            yield memoryview(slabs[-1])
            self._pool.give(slabs.pop())
