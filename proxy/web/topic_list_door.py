"""Topic lists that are asked for over HTTP: the same memory as over the binary protocol, so the same limiter.

Rules: the direct permit for the window of a list stands in the one queue of all lists, is there before a broker is
asked, and ends with the last byte; a client that leaves the queue frees its place at once; who gets none is told
what a client of the binary port is told.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from limiter.clock import Clock
from limiter.errors import PermitAcquireError
from limiter.semaphore import AsyncSemaphore
from proxy.charging import Charging
from proxy.counters import WebCounters
from proxy.errors import DIRECT_REFUSAL
from proxy.refusals import RefusalLog, Stage
from proxy.usage import UsageBook
from proxy.web.clients import WebClient
from proxy.web.refused import HttpRefused, retry_after

RETRY_SECONDS: Final = 1.0


@dataclass(slots=True)
class ListUnderWay:
    """One admitted list: what its client was sent so far."""

    sent_bytes: int = 0


class TopicListDoor:
    """Let lists in that have memory."""

    def __init__(
        self,
        direct: AsyncSemaphore,
        charging: Charging,
        refusals: RefusalLog,
        usage: UsageBook,
        counters: WebCounters,
        clock: Clock,
    ) -> None:
        self._direct = direct
        self._charging = charging
        self._refusals = refusals
        self._usage = usage
        self._counters = counters
        self._clock = clock

    @asynccontextmanager
    async def admitted(self, client: WebClient, namespace: str, window_bytes: int) -> AsyncIterator[ListUnderWay]:
        """Hold direct memory for one list; raises HttpRefused with 429 if there is none in time."""
        try:
            permit = await self._direct.acquire(window_bytes, key=self._charging.key(client, namespace))
        except PermitAcquireError as error:
            self._counters.lists_refused += 1
            self._refusals.note(error, Stage.DIRECT, self._direct, client.name, namespace)
            self._usage.refused(namespace, client.principal)
            raise HttpRefused(429, DIRECT_REFUSAL, "direct_memory", retry_after(RETRY_SECONDS)) from error
        began, under_way = self._clock.time(), ListUnderWay()
        try:
            yield under_way
        finally:
            permit.release()
            held = window_bytes * (self._clock.time() - began)
            self._usage.charge(namespace, client.principal, byte_seconds=held, sent_bytes=under_way.sent_bytes)
