"""When the garbage collector looks at everything: once a minute, but not where that costs much and finds little.

Clients that have left are reference cycles: only a full collection frees them.
"""

import gc
from typing import Final

from proxy.app.metrics.counters import Counters
from proxy.app.sockets import Sockets
from proxy.requests.topic_lists.service import TopicListService

COLLECT_SECONDS: Final = 60
COLLECT_AT_LAST_SECONDS: Final = 600
# A full garbage collection takes 5 us for a connection and 19 us for a waiting list: 240 ms in a storm of 10,000.
FEW_LISTS: Final = 100
# Clients that have left keep about 2 KB each until a collection: 8 MB.
MANY_LEFT: Final = 4096


class CycleCollection:
    """Runs a full garbage collection now and then, if possible while no list is being sent.

    With many waiting lists and few clients to free, the collection is postponed.
    """

    def __init__(self, sockets: Sockets, counters: Counters, lists: TopicListService, now: float) -> None:
        self._sockets = sockets
        self._counters = counters
        self._lists = lists
        self._left = 0
        self._last = now

    def tick(self, now: float) -> None:
        """Collect if the time has come."""
        left = sum(self._counters.shared.disconnects.values())
        worth_it = len(self._lists.groups.registry) <= FEW_LISTS or left - self._left >= MANY_LEFT
        quiet = self._sockets.quiet and worth_it
        if now - self._last >= (COLLECT_SECONDS if quiet else COLLECT_AT_LAST_SECONDS):
            self._last, self._left = now, left
            gc.collect()
