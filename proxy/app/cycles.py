"""When the garbage collector looks for what reference counts do not free, so that no look takes long.

A full collection walks all objects that the collector knows: 5 us for a connection, 60 ms for 10,000 that are idle.
So what has been looked at once is frozen: later collections walk only what came after it. A client that has left is
freed by its reference counts, frozen or not. Frozen cycles, as an exception with its traceback may leave them, are
looked for when many clients have left, rarely, and if possible while there are few to walk.
"""

import gc
from collections.abc import Callable, Sized
from typing import Final

from proxy.brokers.sockets import Sockets
from proxy.clients.requests import RequestServices
from proxy.core.counters import DISCONNECTS, Counters

COLLECT_SECONDS: Final = 60
COLLECT_AT_LAST_SECONDS: Final = 600
# So many new connections take some 2.5 ms, and are not left until the minute is over.
MANY_CAME: Final = 500
# A waiting list takes 19 us: 190 ms in a storm of 10,000.
FEW_LISTS: Final = 100
# A client that has left in a cycle would keep about 2 KB until a collection: 8 MB.
MANY_LEFT: Final = 4096
# All of so many connections are walked in some 5 ms.
FEW_CONNECTIONS: Final = 1000
# 100 MB, if each were in a cycle: then all are walked, however many there are.
TOO_MANY_LEFT: Final = 50_000


def collect(everything: bool) -> None:
    """Free cycles among what is not frozen, or `everything`; then freeze what is left."""
    if everything:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


class CycleCollection:
    """Collects now and then, if possible while no list is being sent, and freezes what is left."""

    def __init__(
        self,
        sockets: Sockets,
        sessions: Sized,
        counters: Counters,
        requests: RequestServices,
        now: float,
        collect: Callable[[bool], None] = collect,
    ) -> None:
        self._sockets = sockets
        self._sessions = sessions
        self._counters = counters
        self._lists = requests.topic_lists
        self._collect = collect
        # When the last collection was, how many had come and left by then; and the same of the last that walked all.
        self._last = self._last_of_all = now
        self._came = self._left = self._left_of_all = 0

    def tick(self, now: float) -> None:
        """Collect if the time has come."""
        left = int(sum(self._counters[DISCONNECTS].values()))
        came = left + len(self._sessions)
        since = now - self._last
        worth_it = len(self._lists.groups.registry) <= FEW_LISTS or left - self._left >= MANY_LEFT
        due = since >= COLLECT_SECONDS or came - self._came >= MANY_CAME
        if since >= COLLECT_AT_LAST_SECONDS or (due and worth_it and self._sockets.quiet):
            self._last, self._came, self._left = now, came, left
            everything = self._all_wanted(now, left)
            if everything:
                self._last_of_all, self._left_of_all = now, left
            self._collect(everything)

    def _all_wanted(self, now: float, left: int) -> bool:
        """Return whether so many have left that frozen ones may be worth a look."""
        if now - self._last_of_all < COLLECT_AT_LAST_SECONDS:
            return False
        few = len(self._sessions) <= FEW_CONNECTIONS
        return left - self._left_of_all >= (MANY_LEFT if few else TOO_MANY_LEFT)
