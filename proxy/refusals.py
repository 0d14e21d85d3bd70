"""Say why a request got no memory or no time: to its client, to the counters, and, now and then, to the log.

Owns the stages of a request that may wait, and for each the words and the configuration key that belong to it.
"""

from enum import Enum
from typing import Final

from limiter.clock import Clock
from limiter.errors import PermitAcquireError, PermitAcquireQueueFull
from limiter.semaphore import AsyncSemaphore
from proxy.errors import DIRECT_REFUSAL, HEAP_REFUSAL
from proxy.log import LinePace, Logger

TOP_HOLDERS: Final = 3


class Stage(Enum):
    """What a request waits for: its outcome in the metrics, what its client is told, and the key to change."""

    CLIENT_BUSY = (
        "timed_out",
        "Failed because earlier answers to this client were not read in time",
        "topicListRequestTimeoutMillis",
    )
    BROKER_BUSY = (
        "timed_out",
        "Failed because the broker has too many topic lists to answer",
        "topicListMaxOutstandingPerBroker",
    )
    HEAP = ("refused_heap", HEAP_REFUSAL, "maxTopicListInFlightHeapMemSize")
    BROKER = ("timed_out", "Failed because the broker did not answer in time", "topicListRequestTimeoutMillis")
    DIRECT = ("refused_direct", DIRECT_REFUSAL, "maxTopicListInFlightDirectMemSize")

    def __init__(self, outcome: str, refusal: str, key: str) -> None:
        self.outcome = outcome
        self.refusal = refusal
        self._key = key

    def key_to_change(self, error: Exception) -> str:
        """Name the configuration key that would have let this request in."""
        if self not in (Stage.HEAP, Stage.DIRECT):
            return self._key
        return f"{self._key}PermitsAcquireQueueSize" if isinstance(error, PermitAcquireQueueFull) else f"{self._key}MB"


class RefusalLog:
    """Write at most one line a second, with the count of refusals it stands for."""

    def __init__(self, logger: Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._pace = LinePace()
        self._silent = 0

    def note(self, error: Exception, stage: Stage, semaphore: AsyncSemaphore, client: str, subject: str) -> None:
        """Log one refusal, or count it towards the next line; `subject` is the namespace or topic asked for."""
        self._silent += 1
        if not self._pace.due(self._clock.time()):
            return
        self._logger.warning(
            "request refused",
            limiter=semaphore.name,
            limit=semaphore.limit,
            held=semaphore.held,
            asked=error.asked if isinstance(error, PermitAcquireError) else None,
            queued=semaphore.queue_size,
            change=stage.key_to_change(error),
            top_holders=[[str(key), held] for key, held in semaphore.top_holders(TOP_HOLDERS)],
            client=client,
            subject=subject,
            reason=stage.refusal,
            refusals_since_last_line=self._silent,
        )
        self._silent = 0
