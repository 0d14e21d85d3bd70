"""Remember how large a namespace's topic list was last time, to ask for a good heap permit at once next time.

Never waits and never grows beyond its bound; a wrong estimate costs one growth (PIP-442: the permit is updated to the
actual size), never correctness.
"""

from collections import OrderedDict
from typing import Final

from protocol.pb import PulsarApi_pb2 as pb

MAX_ENTRIES: Final = 10_000


class ListSizes:
    """Estimate heap permits by (namespace, mode, pattern), in bytes, with `initial_bytes` for what is not known."""

    def __init__(self, initial_bytes: int, max_entries: int = MAX_ENTRIES) -> None:
        self.initial_bytes = initial_bytes
        self._max_entries = max_entries
        self._sizes: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sizes)

    def estimate(self, request: pb.CommandGetTopicsOfNamespace) -> int:
        """Return the last known cost of such a request."""
        return self._sizes.get(_key(request), self.initial_bytes)

    def known(self, request: pb.CommandGetTopicsOfNamespace) -> int | None:
        """Return the last known cost of such a request, None if there was none."""
        return self._sizes.get(_key(request))

    def learn(self, request: pb.CommandGetTopicsOfNamespace, cost: int) -> bool:
        """Remember the cost of such a request; drop the oldest entry when there are too many.

        Return whether a cost was known.
        """
        key = _key(request)
        known = key in self._sizes
        self._sizes[key] = cost
        self._sizes.move_to_end(key)
        if len(self._sizes) > self._max_entries:
            self._sizes.popitem(last=False)
        return known


def _key(request: pb.CommandGetTopicsOfNamespace) -> int:
    # A hash, not the strings, so that a client cannot make entries large. Requests with equal hashes share an estimate.
    return hash((request.namespace, request.mode, request.topics_pattern))
