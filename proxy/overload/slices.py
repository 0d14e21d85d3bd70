"""Divide work on a full table into slices, an iteration of the event loop for each; keep the largest of many.

No clock. A step is the work on a topic, or on a relay.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from heapq import heappush, heappushpop
from typing import Any, Final

# Topics in an iteration of the loop: about 2 ms.
SLICE: Final = 256


async def in_slices(
    steps: Iterable[object], size: int = SLICE, between: Callable[[], Awaitable[bool]] | None = None
) -> None:
    """Run all steps, with an iteration of the loop after each `size`; `between` may end the work by returning False."""
    for done, _ in enumerate(steps, 1):
        if not done % size:
            await asyncio.sleep(0)
            if between is not None and not await between():
                return


class Largest:
    """The largest `most` of the keys that were added; equal to `heapq.nlargest`, key by key."""

    __slots__ = ("_heap", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[Any, ...]] = []

    def add(self, key: tuple[Any, ...]) -> None:
        """Add a key."""
        if len(self._heap) < self._most:
            heappush(self._heap, key)
        else:
            heappushpop(self._heap, key)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the keys, the largest first."""
        return iter(sorted(self._heap, reverse=True))
