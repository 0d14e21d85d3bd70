"""Say why a request got no memory or no time: to its client, to the counters, and, now and then, to the log.

Owns the stages of a request that may wait, and for each the words and the configuration key that belong to it. What
waiting does not help against is refused by `proxy.core.errors.OverLimit`, which brings its own. The last few refusals
are kept for `pulsar-proxy top`: so many, and so long.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from limiter.clock import Clock
from limiter.errors import PermitAcquireError, PermitAcquireQueueFull, PermitAcquireTimeout
from limiter.semaphore import AsyncSemaphore
from proxy.core.errors import DIRECT_REFUSAL, HEAP_REFUSAL, OverLimit
from proxy.core.log import LinePace, Logger

TOP_HOLDERS: Final = 3
MOST_RECENT: Final = 20
LONGEST_TEXT: Final = 200
_KEY_OF_THE_CAP: Final = "topicListMaxMemoryPercentPerKey"


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

    def key_to_change(self, error: Exception, *, caps_keys: bool = False) -> str:
        """Name the configuration key that would have let this request in; `caps_keys`: each key has a cap."""
        if self not in (Stage.HEAP, Stage.DIRECT):
            return self._key
        if isinstance(error, PermitAcquireQueueFull):
            return f"{self._key}PermitsAcquireQueueSize"
        if caps_keys and isinstance(error, PermitAcquireTimeout) and error.asked + error.held <= error.limit:
            # There was room for it: what kept it out was the cap of its own key.
            return _KEY_OF_THE_CAP
        return f"{self._key}MB"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refused request: when (Unix time), at which stage, whose, the limiter's books in bytes, the key to change.

    Without a limiter its books are None; `asked` and `limit` are then those of the limit that was passed, if any.
    """

    time: float
    stage: str
    client: str
    subject: str
    limiter: str | None
    asked: int | None
    held: int | None
    limit: int | None
    queued: int | None
    change: str
    reason: str
    top_holders: tuple[tuple[str, int], ...]


class RefusalLog:
    """Write at most one line a second for each stage, with the count of refusals it stands for, and remember the last.

    `top_holders` of a remembered refusal is at most a second old: asking for it costs time that a storm has not.
    """

    def __init__(
        self,
        logger: Logger,
        clock: Clock,
        now: Callable[[], float] = time.time,
        names: Callable[[object], str] = str,
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._now = now
        self._names = names
        self._pace = LinePace()
        self._holders_pace = LinePace()
        self._holders: dict[str, tuple[tuple[str, int], ...]] = {}
        # By stage: how many no line stands for yet, and the last of them.
        self._silent: dict[str, tuple[int, Refusal]] = {}
        self.recent: deque[Refusal] = deque(maxlen=MOST_RECENT)

    def note(self, error: Exception, stage: Stage, semaphore: AsyncSemaphore | None, client: str, subject: str) -> None:
        """Log one refusal, or count it towards the next line; `subject` is the namespace or topic asked for.

        `semaphore` is the limiter that had nothing to give; None if the request waited for something else.
        """
        self._keep(
            Refusal(
                time=self._now(),
                stage=stage.name.lower(),
                client=client[:LONGEST_TEXT],
                subject=subject[:LONGEST_TEXT],
                limiter=semaphore.name if semaphore is not None else None,
                asked=error.asked if semaphore is not None and isinstance(error, PermitAcquireError) else None,
                held=semaphore.held if semaphore is not None else None,
                limit=semaphore.limit if semaphore is not None else None,
                queued=semaphore.queue_size if semaphore is not None else None,
                change=stage.key_to_change(error, caps_keys=semaphore is not None and semaphore.caps_keys),
                reason=stage.refusal,
                top_holders=self._top_holders(semaphore) if semaphore is not None else (),
            )
        )

    def note_over_limit(self, error: OverLimit, client: str, subject: str) -> None:
        """Log one refusal by a limit for which nobody waits, or count it towards the next line."""
        self._keep(
            Refusal(
                time=self._now(),
                stage=error.stage,
                client=client[:LONGEST_TEXT],
                subject=subject[:LONGEST_TEXT],
                limiter=None,
                asked=error.asked,
                held=None,
                limit=error.limit,
                queued=None,
                change=error.key,
                reason=error.message[:LONGEST_TEXT],
                top_holders=(),
            )
        )

    def flush(self) -> None:
        """Write the lines that the pace held back and now allows; called once a second.

        Otherwise the end of a storm would be told by the first line of the next one.
        """
        for stage in list(self._silent):
            self._write_if_due(stage)

    def _keep(self, refusal: Refusal) -> None:
        self.recent.append(refusal)
        silent = self._silent.get(refusal.stage)
        self._silent[refusal.stage] = (1 if silent is None else silent[0] + 1, refusal)
        self._write_if_due(refusal.stage)

    def _write_if_due(self, stage: str) -> None:
        if not self._pace.due(self._clock.time(), stage):
            return
        count, refusal = self._silent.pop(stage)
        books = {name: getattr(refusal, name) for name in ("limiter", "limit", "held", "asked", "queued")}
        known = {name: value for name, value in books.items() if value is not None}
        if refusal.limiter is not None:
            known["top_holders"] = [list(holder) for holder in refusal.top_holders]
        self._logger.warning(
            "request refused",
            stage=stage,
            **known,
            change=refusal.change,
            client=refusal.client,
            subject=refusal.subject,
            reason=refusal.reason,
            refusals_since_last_line=count,
        )

    def _top_holders(self, semaphore: AsyncSemaphore) -> tuple[tuple[str, int], ...]:
        name = semaphore.name
        if self._holders_pace.due(self._clock.time(), name):
            holders = semaphore.top_holders(TOP_HOLDERS)
            self._holders[name] = tuple((self._names(key)[:LONGEST_TEXT], held) for key, held in holders)
        return self._holders[name]
