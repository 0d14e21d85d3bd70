"""Large bodies in slabs of at most 256 KiB: each slab is one read and one decoding step.

Slabs make the memory of a body equal to what its permit counts (no over-allocation, no copy to grow), keep every step
of the event loop short whatever the body's size, and return to one small pool when their last byte has been sent.
"""

from collections.abc import Callable, Iterator
from typing import Final

SLAB_BYTES: Final = 256 * 1024
# Object header and allocator rounding of one bytearray, its place in the list, and its share of a memoryview.
SLAB_OVERHEAD_BYTES: Final = 256
# So many times the spare slabs are kept while memory for lists is unused.
ROOMY: Final = 4


class SlabPool:
    """Up to `spare` free slabs for reuse, so that a busy proxy does not fault in new pages for every list.

    Up to `ROOMY` times as many are kept while free slabs and one more fit into `room()`: bytes of memory that was set
    aside for lists and that no list has now. A new slab costs 10 to 20 us, because its pages are faulted in and zeroed.
    """

    __slots__ = ("_free", "_room", "_spare", "_taken")

    def __init__(self, spare: int = 16, room: Callable[[], int] = lambda: 0) -> None:
        self._free: list[bytearray] = []
        self._room = room
        self._spare = spare
        self._taken = False

    @property
    def free_bytes(self) -> int:
        """Return the number of bytes in slabs kept for reuse."""
        return len(self._free) * SLAB_BYTES

    def set_spare(self, spare: int) -> None:
        """Change how many free slabs are kept, and drop free slabs beyond that."""
        self._spare = spare
        self._fit()

    def take(self) -> bytearray:
        """Return a slab with unspecified contents."""
        self._taken = True
        return self._free.pop() if self._free else bytearray(SLAB_BYTES)

    def trim(self) -> None:
        """Drop the free slabs if no slab was taken since the last call, else those for which room is no more."""
        if not self._taken:
            self._free.clear()
        self._taken = False
        self._fit()

    def give(self, slab: bytearray) -> None:
        """Return a slab, which must not be read any more, to the pool."""
        if len(slab) == SLAB_BYTES and len(self._free) < self._most():
            self._free.append(slab)

    def _most(self) -> int:
        """Return how many free slabs may be kept now."""
        if len(self._free) < self._spare:
            return self._spare
        return max(self._spare, min(ROOMY * self._spare, self._room() // SLAB_BYTES))

    def _fit(self) -> None:
        del self._free[self._most() :]


class SlabBody:
    """A body of a known size; a subclass may look at every slab as it becomes full."""

    __slots__ = ("_buffer", "_filled", "_pool", "_slabs", "_unallocated", "size")

    def __init__(self, size: int, pool: SlabPool) -> None:
        self.size = size
        self._pool = pool
        self._slabs: list[bytearray] = []
        self._unallocated = size
        self._buffer = memoryview(b"")
        self._filled = 0

    @property
    def arrived_bytes(self) -> int:
        """Return how many bytes of a body that is being read have come."""
        return self.size - self._unallocated - len(self._buffer) + self._filled

    @staticmethod
    def memory_bytes(size: int) -> int:
        """Return the memory that a body of `size` bytes occupies."""
        return size + SLAB_OVERHEAD_BYTES * (-(-size // SLAB_BYTES))

    def writable(self) -> memoryview:
        """Return the free part of the current slab; empty only when the body is complete."""
        if self._filled == len(self._buffer) and self._unallocated:
            size = min(self._unallocated, SLAB_BYTES)
            self._unallocated -= size
            slab = self._pool.take() if size == SLAB_BYTES else bytearray(size)
            self._slabs.append(slab)
            self._buffer = memoryview(slab)
            self._filled = 0
        return self._buffer[self._filled :]

    def advance(self, count: int) -> None:
        """Count `count` bytes that were written to the buffer last returned."""
        self._filled += count
        if self._filled == len(self._buffer):
            self.slab_filled(self._buffer)

    def slab_filled(self, slab: memoryview) -> None:
        """Called with a slab that is now full; does nothing for an opaque body."""

    def slices(self) -> list[memoryview]:
        """Return the body's slabs in order, for writing."""
        return [memoryview(slab) for slab in self._slabs]

    def hand_over(self) -> list[bytearray]:
        """Return the slabs, which are the caller's from now on; the body keeps none."""
        self._buffer = memoryview(b"")
        slabs, self._slabs = self._slabs, []
        return slabs

    def give(self, slab: bytearray) -> None:
        """Return a slab that was handed over, and is not read any more, to the pool."""
        self._pool.give(slab)

    def consume(self) -> Iterator[memoryview]:
        """Yield the slabs one by one, for writing; the next step means that the last slab's bytes have been sent.

        A slab returns to the pool at that step. The last slab yielded before the iterator is dropped does not: its
        bytes may still be on their way.
        """
        self._buffer = memoryview(b"")
        slabs, self._slabs = self._slabs[::-1], []
        while slabs:
            yield memoryview(slabs[-1])
            self._pool.give(slabs.pop())
