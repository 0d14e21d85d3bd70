"""How often what follows from the batches of a stream is made anew while the stream goes on.

Rule: only after a batch, and with a rest that grows with the work, so that batches keep most of the machine.
"""

import time
from collections.abc import Callable
from typing import Final

__all__ = ["Pace"]

# The work is a tenth of the time at most, however long it takes by now.
REST_TIMES: Final = 9


class Pace:
    """Says when work is due; batches come in threads of Spark's, the work is done by the caller of `keep`."""

    def __init__(self, least_seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._least_seconds = least_seconds
        self._now = now
        self._due = now()
        self._came = False

    def came(self) -> None:
        """Record that a batch came."""
        self._came = True

    def keep(self, work: Callable[[], object]) -> None:
        """Call `work` if it is due."""
        begin = self._now()
        if not self._came or begin < self._due:
            return
        # Before the work, which may miss a batch that comes meanwhile.
        self._came = False
        work()
        end = self._now()
        self._due = end + max(self._least_seconds, REST_TIMES * (end - begin))
