"""Items that wait in turns by key: in each round, every key that waits gives its first item."""

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lanes(Generic[T]):
    """A lane of items for each key, in the order of their arrival; a key without items has no lane.

    Pushes and turns are O(1).
    """

    __slots__ = ("_count", "_lanes")

    def __init__(self) -> None:
        self._count = 0
        # The first key has the next turn. A plain dict would look through all keys removed from its front.
        self._lanes: OrderedDict[Hashable, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return self._count

    def push(self, key: Hashable, item: T) -> None:
        """Append an item to the lane of its key; a key that did not wait has its turn after all others."""
        self._count += 1
        lane = self._lanes.get(key)
        if lane is None:
            self._lanes[key] = deque((item,))
        else:
            lane.append(item)

    def popleft(self) -> T:
        """Remove and return the first item of the key whose turn it is. Raises KeyError if nobody waits."""
        key, lane = self._lanes.popitem(last=False)
        item = lane.popleft()
        self._count -= 1
        if lane:
            self._lanes[key] = lane
        return item
