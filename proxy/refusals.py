"""Say why a request got no memory or no time: to its client, to the counters, and, now and then, to the log.

Owns the stages of a request that may wait, and for each the words and the configuration key that belong to it. The
last few refusals are kept for `pulsar-proxy top`: so many, and so long.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from limiter.clock import Clock
from limiter.errors import PermitAcquireError, PermitAcquireQueueFull
from limiter.semaphore import AsyncSemaphore
from proxy.errors import DIRECT_REFUSAL, HEAP_REFUSAL
from proxy.log import LinePace, Logger

TOP_HOLDERS: Final = 3
MOST_RECENT: Final = 20
LONGEST_TEXT: Final = 200


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
    BROKER_CONNECTION = (
        "timed_out",
        "Failed because no connection to the broker could be had in time",
        "brokerProxyConnectTimeoutMs",
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


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refused request: when (Unix time), at which stage, whose, the limiter's books in bytes, the key to change."""

    time: float
    stage: str
    client: str
    subject: str
    limiter: str
    asked: int | None
    held: int
    limit: int
    queued: int
    change: str
    reason: str
    top_holders: tuple[tuple[str, int], ...]


class RefusalLog:
    """Write at most one line a second, with the count of refusals it stands for, and remember the last ones.

    `top_holders` of a remembered refusal is at most a second old: asking for it costs time that a storm has not.
    """

    def __init__(self, logger: Logger, clock: Clock, now: Callable[[], float] = time.time) -> None:
        self._logger = logger
        self._clock = clock
        self._now = now
        self._pace = LinePace()
        self._holders_pace = LinePace()
        self._holders: dict[str, tuple[tuple[str, int], ...]] = {}
        self._silent = 0
        self.recent: deque[Refusal] = deque(maxlen=MOST_RECENT)

    def note(self, error: Exception, stage: Stage, semaphore: AsyncSemaphore, client: str, subject: str) -> None:
        """Log one refusal, or count it towards the next line; `subject` is the namespace or topic asked for."""
        self._silent += 1
        refusal = Refusal(
            time=self._now(),
            stage=stage.name.lower(),
            client=client[:LONGEST_TEXT],
            subject=subject[:LONGEST_TEXT],
            limiter=semaphore.name,
            asked=error.asked if isinstance(error, PermitAcquireError) else None,
            held=semaphore.held,
            limit=semaphore.limit,
            queued=semaphore.queue_size,
            change=stage.key_to_change(error),
            reason=stage.refusal,
            top_holders=self._top_holders(semaphore),
        )
        self.recent.append(refusal)
        if self._pace.due(self._clock.time()):
            self._write(refusal)

    def _write(self, refusal: Refusal) -> None:
        self._logger.warning(
            "request refused",
            limiter=refusal.limiter,
            limit=refusal.limit,
            held=refusal.held,
            asked=refusal.asked,
            queued=refusal.queued,
            change=refusal.change,
            top_holders=[list(holder) for holder in refusal.top_holders],
            client=refusal.client,
            subject=refusal.subject,
            reason=refusal.reason,
            refusals_since_last_line=self._silent,
        )
        self._silent = 0

    def _top_holders(self, semaphore: AsyncSemaphore) -> tuple[tuple[str, int], ...]:
        name = semaphore.name
        if self._holders_pace.due(self._clock.time(), name):
            holders = semaphore.top_holders(TOP_HOLDERS)
            self._holders[name] = tuple((str(key)[:LONGEST_TEXT], held) for key, held in holders)
        return self._holders[name]
