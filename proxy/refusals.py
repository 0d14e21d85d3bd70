"""Log why memory was refused: the limiter, its numbers, who holds most, and the key to change; never a line per
refusal.
"""

from typing import Final

from limiter.clock import Clock
from limiter.dual import AsyncDualMemoryLimiter
from limiter.errors import PermitAcquireError, PermitAcquireQueueFull, PermitAcquireTimeout
from proxy.errors import DIRECT_REFUSAL
from proxy.log import Logger

SECONDS_BETWEEN_LINES: Final = 1.0
TOP_HOLDERS: Final = 3


class RefusalLog:
    """Write at most one line a second, with the count of refusals it stands for."""

    def __init__(self, logger: Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._next_line = 0.0
        self._silent = 0

    def note(
        self,
        error: PermitAcquireError,
        refusal: str,
        limiter: AsyncDualMemoryLimiter,
        client: str,
        namespace: str,
    ) -> None:
        """Log one refusal, or count it towards the next line."""
        now = self._clock.time()
        if now < self._next_line:
            self._silent += 1
            return
        self._next_line = now + SECONDS_BETWEEN_LINES
        direct = refusal == DIRECT_REFUSAL
        semaphore = limiter.direct if direct else limiter.heap
        self._logger.warning(
            "topic list refused",
            limiter=error.limiter,
            limit=error.limit,
            held=error.held,
            asked=error.asked,
            queued=error.queued,
            change=key_to_change(error, direct=direct),
            top_holders=[[str(key), held] for key, held in semaphore.top_holders(TOP_HOLDERS)],
            client=client,
            namespace=namespace,
            refusals_since_last_line=self._silent + 1,
        )
        self._silent = 0


def key_to_change(error: PermitAcquireError, *, direct: bool) -> str:
    """Name the configuration key that would have let this request in."""
    kind = "Direct" if direct else "Heap"
    if isinstance(error, PermitAcquireQueueFull):
        return f"maxTopicListInFlight{kind}MemSizePermitsAcquireQueueSize"
    if isinstance(error, PermitAcquireTimeout):
        return f"maxTopicListInFlight{kind}MemSizeMB"
    return f"maxTopicListInFlight{kind}MemSizePermitsAcquireTimeoutMillis"
