"""Sum weights by name in bounded memory, so that the heaviest names are found.

Rule: clients choose the names, so neither their number nor their length may cost memory. The sum is a space-saving
sketch (Metwally, Agrawal, El Abbadi 2005): every name with more than 1/`max_entries` of the weight is in it, and no
name is shown with more than its own.
"""

import heapq
from typing import Final
from zlib import crc32

LONGEST_NAME: Final = 120
_FORGOTTEN: Final = 1e-3


class HeavyHitters:
    """Sums weights by name, for at most `max_entries` names at a time.

    If all entries are taken, a new name replaces the least name; the weight of the replaced name is the uncertainty of
    the new one.
    """

    __slots__ = ("_entries", "_heap", "_max_entries")

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        # Name -> [count, uncertainty: how much of the count may belong to replaced names].
        self._entries: dict[str, list[float]] = {}
        # A pair for each name, with its count at the last comparison, which is never above the current count.
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, name: str, weight: float) -> None:
        """Add `weight` to a name; weights of 0 or less are ignored."""
        if not weight > 0:
            return
        entry = self._entries.get(name)
        if entry is not None:
            entry[0] += weight
        elif len(self._entries) < self._max_entries:
            self._entries[name] = [weight, 0.0]
            heapq.heappush(self._heap, (weight, name))
        else:
            least = self._least()
            del self._entries[self._heap[0][1]]
            self._entries[name] = [least + weight, least]
            heapq.heapreplace(self._heap, (least + weight, name))

    def get(self, name: str) -> float:
        """Return the certain weight of a name; 0 if the name has no entry."""
        count, others = self._entries.get(name, (0.0, 0.0))
        return count - others

    def top(self, count: int) -> list[str]:
        """Return the names with the largest certain weights, largest first."""
        return heapq.nlargest(count, self._entries, key=self.get)

    def scale(self, factor: float) -> None:
        """Multiply all counts, and remove names with next to no weight left."""
        scaled = {name: [count * factor, others * factor] for name, (count, others) in self._entries.items()}
        self._entries = {name: entry for name, entry in scaled.items() if entry[0] >= _FORGOTTEN}
        self._heap = [(entry[0], name) for name, entry in self._entries.items()]
        heapq.heapify(self._heap)

    def _least(self) -> float:
        # Each count that has grown since the last call costs one step here, once: O(log n) a call on average.
        heap, entries = self._heap, self._entries
        while heap[0][0] != (now := entries[heap[0][1]][0]):
            heapq.heapreplace(heap, (now, heap[0][1]))
        return heap[0][0]


def label(text: str) -> str:
    """Cut a name that a client chose to a bounded length."""
    if len(text) <= LONGEST_NAME:
        return text
    # The checksum keeps long names with the same beginning apart.
    return f"{text[:LONGEST_NAME]}...{crc32(text.encode(errors='surrogatepass')):08x}"
