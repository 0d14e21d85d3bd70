"""Requests that are refused for lack of memory or time: the error for the client, the outcome, and a paced log line.

Each stage at which a request may wait has its text and its configuration key here. Requests that no waiting would help
are refused by `proxy.core.errors.OverLimit`, which has its own text. The last `MOST_RECENT` refusals are kept for
`pulsar-proxy top`.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from limiter.clock import Clock
from limiter.errors import PermitAcquireError, PermitAcquireQueueFull, PermitAcquireTimeout
from limiter.semaphore import AsyncSemaphore
from proxy.core.errors import DIRECT_REFUSAL, HEAP_REFUSAL, OutOfMemory, OverLimit
from proxy.core.log import LinePace, Logger

TOP_HOLDERS: Final = 3
MOST_RECENT: Final = 20
LONGEST_TEXT: Final = 200
_KEY_OF_THE_CAP: Final = "topicListMaxMemoryPercentPerKey"


class Stage(Enum):
    """A stage at which requests wait: outcome in the metrics, error text for the client, key to change."""

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
    HANDSHAKE = (
        "refused_handshake",
        "Failed because the memory for large CONNECT commands is in use",
        "maxTopicListInFlightDirectMemSizeMB",
    )

    def __init__(self, outcome: str, refusal: str, key: str) -> None:
        self.outcome = outcome
        self.refusal = refusal
        self._key = key

    def key_to_change(self, error: Exception, *, caps_keys: bool = False) -> str:
        """Return the configuration key to change so that the request fits; `caps_keys`: the limiter caps each key."""
        if self not in (Stage.HEAP, Stage.DIRECT):
            return self._key
        if isinstance(error, PermitAcquireQueueFull):
            return f"{self._key}PermitsAcquireQueueSize"
        if caps_keys and isinstance(error, PermitAcquireTimeout) and error.asked + error.held <= error.limit:
            # The limit had room for the request: the cap of its fairness key kept it out.
            return _KEY_OF_THE_CAP
        return f"{self._key}MB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refused request: Unix time, stage, client, the limiter's numbers in bytes, and the key to change.

    Without a limiter its numbers are None; `asked` and `limit` are then those of the limit that was exceeded, if any.
    """

    time: float
    stage: str
    client: str
    subject: str
    limiter: str | None = None
    asked: int | None = None
    held: int | None = None
    limit: int | None = None
    queued: int | None = None
    change: str
    reason: str
    top_holders: tuple[tuple[str, int], ...] = ()


class RefusalLog:
    """Writes at most one line a second for each stage, with the number of refusals since the last, and keeps the last.

    `top_holders` of a kept refusal is at most a second old: computing it for each refusal would take too long in a
    storm.
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
        # Stage -> the number of refusals since the last line, and the last of them.
        self._silent: dict[str, tuple[int, Refusal]] = {}
        self.recent: deque[Refusal] = deque(maxlen=MOST_RECENT)

    def note(self, error: Exception, stage: Stage, semaphore: AsyncSemaphore | None, client: str, subject: str) -> None:
        """Log a refusal, or count it towards the next line; `subject` is the namespace or topic of the request.

        `semaphore` is the limiter that granted no permit; None if the request waited for something else.
        """
        refusal = Refusal(
            time=self._now(),
            stage=stage.name.lower(),
            client=client[:LONGEST_TEXT],
            subject=subject[:LONGEST_TEXT],
            change=stage.key_to_change(error, caps_keys=semaphore is not None and semaphore.caps_keys),
            reason=stage.refusal,
        )
        if semaphore is not None:
            refusal = replace(
                refusal,
                limiter=semaphore.name,
                asked=error.asked if isinstance(error, PermitAcquireError) else None,
                held=semaphore.held,
                limit=semaphore.limit,
                queued=semaphore.queue_size,
                top_holders=self._top_holders(semaphore),
            )
        self._keep(refusal)

    def note_over_limit(self, error: OverLimit, client: str, subject: str) -> None:
        """Log a refusal by a limit that no request waits for, or count it towards the next line."""
        self._keep(
            Refusal(
                time=self._now(),
                stage=error.stage,
                client=client[:LONGEST_TEXT],
                subject=subject[:LONGEST_TEXT],
                asked=error.asked,
                limit=error.limit,
                change=error.key,
                reason=error.message[:LONGEST_TEXT],
            )
        )

    def note_out_of_memory(self, error: OutOfMemory, client: str, subject: str) -> None:
        """Log a refusal because the machine has no memory, or count it towards the next line."""
        self._keep(
            Refusal(
                time=self._now(),
                stage="machine_memory",
                client=client[:LONGEST_TEXT],
                subject=subject[:LONGEST_TEXT],
                change="memory of the machine or container, ulimit -v; or lower maxTopicListInFlightHeapMemSizeMB",
                reason=error.message,
            )
        )

    def flush(self) -> None:
        """Write the lines that the pace held back and now allows; called once a second.

        Without this call the first line of the next storm would report the end of the last one.
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
        numbers = ((name, getattr(refusal, name)) for name in ("limiter", "limit", "held", "asked", "queued"))
        known = {name: value for name, value in numbers if value is not None}
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
