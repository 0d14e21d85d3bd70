"""Direct permits for topic lists over HTTP, from the same limiter as topic lists of the binary protocol.

Rules: the permit for the window of a list waits in the common queue of all lists, is granted before a broker is asked,
and is released after the last byte. A client that leaves the queue frees its place at once. A client without a permit
gets the same error text as a client of the binary port.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from limiter.clock import Clock
from limiter.errors import PermitAcquireError
from limiter.semaphore import AsyncSemaphore
from proxy.auth.fairness_key import FairnessKeys
from proxy.core.errors import DIRECT_REFUSAL, DisconnectCause
from proxy.telemetry.events.direct_records import DirectRecord
from proxy.telemetry.events.recorder import Recorder, RequestOrigin
from proxy.telemetry.heavy_hitters import UsageTracker
from proxy.telemetry.refusals import RefusalLog, Stage
from proxy.web.http.clients import WebClient
from proxy.web.http.counters import WebCounters
from proxy.web.http.errors import HttpRefused, retry_after

RETRY_SECONDS: Final = 1.0
KIND: Final = "get_topics"


@dataclass(slots=True)
class ListUnderWay:
    """An admitted list: the bytes sent to its client, and its outcome, in the words of the event schema."""

    sent_bytes: int = 0
    outcome: str = "ok"


class TopicListPermits:
    """Admits topic lists that get a direct permit."""

    def __init__(
        self,
        direct: AsyncSemaphore,
        fairness_keys: FairnessKeys,
        refusals: RefusalLog,
        usage: UsageTracker,
        counters: WebCounters,
        clock: Clock,
        recorder: Recorder | None = None,
    ) -> None:
        self._direct = direct
        self._fairness_keys = fairness_keys
        self._refusals = refusals
        self._usage = usage
        self._counters = counters
        self._clock = clock
        self._recorder = recorder

    @asynccontextmanager
    async def admitted(self, client: WebClient, namespace: str, window_bytes: int) -> AsyncIterator[ListUnderWay]:
        """Hold a direct permit for a list; raises HttpRefused with 429 if none is granted in time."""
        record = self._record(client, namespace, window_bytes)
        self._usage.asked(namespace)
        try:
            permit = await self._direct.acquire(window_bytes, key=self._fairness_keys.key(client, namespace))
        except asyncio.CancelledError:
            _left(record)
            raise
        except PermitAcquireError as error:
            self._counters.lists_refused += 1
            self._refusals.note(error, Stage.DIRECT, self._direct, client.name, namespace)
            self._usage.refused(namespace, client.principal)
            if record is not None:
                record.failed(KIND, error, None)
            raise HttpRefused(429, DIRECT_REFUSAL, "direct_memory", retry_after(RETRY_SECONDS)) from error
        began, under_way = self._clock.time(), ListUnderWay()
        if record is not None:
            record.granted(permit.size)
        try:
            yield under_way
        except BaseException as error:
            _ended(record, error)
            raise
        else:
            _over(record, under_way)
        finally:
            permit.release()
            held = window_bytes * (self._clock.time() - began)
            self._usage.charge(namespace, client.principal, byte_seconds=held, sent_bytes=under_way.sent_bytes)

    def _record(self, client: WebClient, namespace: str, window_bytes: int) -> DirectRecord | None:
        if self._recorder is None:
            return None
        record = DirectRecord(self._recorder, RequestOrigin(client.principal, client.name, None), namespace)
        record.asks(window_bytes)
        return record


def _left(record: DirectRecord | None) -> None:
    if record is not None:
        record.ended(KIND, "cancelled", None, DisconnectCause.CLIENT_CLOSED)


def _over(record: DirectRecord | None, under_way: ListUnderWay) -> None:
    if record is None:
        return
    if under_way.outcome == "cancelled":
        _left(record)
    else:
        record.ended(KIND, under_way.outcome, under_way.sent_bytes if under_way.outcome == "ok" else None)


def _ended(record: DirectRecord | None, error: BaseException) -> None:
    """Record a list that was refused, or whose task was cancelled because its client has left."""
    if record is None:
        return
    if not isinstance(error, HttpRefused):
        _left(record)
    else:
        record.ended(KIND, "timeout" if error.status == 504 else "upstream_error", None)
