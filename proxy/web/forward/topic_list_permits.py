"""Direct permits for topic lists over HTTP, from the same limiter as topic lists of the binary protocol.

Rules: the permit for the window of a list is taken when the broker's answer begins: lists of a slow broker hold none.
The permit waits in the common queue of all lists, and is released after the last byte. Few lists are asked for at once
(`topicListMaxOutstandingPerBroker`), because an answer that waits for its permit keeps a connection to the broker: the
others wait in turns by fairness key, or by network where `topicListFairness` has none. A client that leaves frees its
place at once. A client without a permit gets the same error text as a client of the binary port.

Nothing is known of a web client before its list, and it answers no PING. So a window takes a share of what is for
clients that are awake (`proxy.requests.reader_shares`), until the client has taken more than a receive buffer, or
stands still.

Clients of one network may take all that there is, and stand. So an eighth of each, of the connections to a broker that
lists may have (`places.py`), of the slots and of that share, is kept for networks that hold nothing of it.
A list waits for its connection before its slot, or those that wait for connections to one broker would hold all slots.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from limiter.errors import PermitAcquireError
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from proxy.config.core import Core
from proxy.core.counters import counter
from proxy.core.errors import DisconnectCause
from proxy.requests.topic_lists.memory import ListMemory
from proxy.telemetry.events.direct_records import DirectRecord
from proxy.telemetry.events.outcomes import outcome_of
from proxy.telemetry.events.recorder import RequestOrigin
from proxy.telemetry.events.reports import Reports
from proxy.telemetry.refusals import Stage
from proxy.web.http.clients import WebClient
from proxy.web.http.errors import HttpRefused, retry_after

RETRY_SECONDS: Final = 1.0
KIND: Final = "get_topics"
# Networks without a slot have one of so many parts of the slots to themselves.
KEPT_OF: Final = 8
_KINDS: Final = {Stage.BROKER_BUSY: "broker_busy", Stage.DIRECT: "direct_memory"}
T = TypeVar("T")
LISTS_REFUSED: Final = counter(
    "http_lists_refused", "Topic lists over HTTP that got no direct memory, or no turn at the broker, in time."
)


class ListUnderWay:
    """A list that may be asked for: the bytes sent to its client, and its outcome, in the words of the event schema."""

    def __init__(self, permits: "TopicListPermits", client: WebClient, namespace: str, window_bytes: int) -> None:
        self.sent_bytes = 0
        self.outcome = "ok"
        self.client = client
        self.namespace = namespace
        self.window_bytes = window_bytes
        self.record = permits.record_of(client, namespace)
        self.key = permits.key_of(client, namespace)
        self.share_key = permits.share_key_of(client, namespace)
        self.waited_seconds = 0.0
        self.slot: Permit | None = None
        self.share: Permit | None = None
        self.permit: Permit | None = None
        self.granted_at = 0.0
        self._permits = permits

    async def waits(self, wait: Callable[[float], Awaitable[T]]) -> T:
        """Return what `wait` brings in the seconds that are left for all waits of the list."""
        return await self._permits.waits(self, wait)

    async def may_ask(self) -> None:
        """Wait for the slot of a question, unless the list has one; raises HttpRefused with 429."""
        await self._permits.take_slot(self)

    def question_over(self) -> None:
        """Release the slot: the answer is over, or led elsewhere, or never came. A second call does nothing."""
        if self.slot is not None:
            self.slot.release()

    async def answer_begins(self, *, fits: bool) -> None:
        """Wait for the permit of the window, and give the slot back; raises HttpRefused with 429.

        An answer that fits into the socket's send buffer leaves memory whether its client reads or not.
        """
        await self._permits.take_window(self, fits=fits)

    @property
    def owed_bytes(self) -> int:
        """Return what the client holds without a share."""
        in_share = self.share is not None and not self.share.released
        return 0 if in_share or self.permit is None else self.window_bytes

    def share_ends(self) -> None:
        """Release the share: the client reads, or it stands still and owes the window."""
        if self.share is not None:
            self.share.release()

    def ended(self, outcome: str) -> None:
        """Record the end of the list; a second call does nothing."""
        record, self.record = self.record, None
        if record is not None:
            gone = DisconnectCause.CLIENT_CLOSED if outcome == "cancelled" else None
            record.ended(KIND, outcome, self.sent_bytes if outcome == "ok" else None, gone)


class TopicListPermits:
    """Admits topic lists; `apply` changes how many are asked for at once."""

    def __init__(self, core: Core, memory: ListMemory, reports: Reports, most_asked: int) -> None:
        clock = self._clock = core.loop
        self._direct = memory.limiter.direct
        self._counters = core.counters
        self._shares = memory.unproven.shares
        self._fairness_keys = memory.fairness_keys
        self._refusals = reports.refusals
        self._usage = reports.usage
        self._recorder = reports.recorder
        # The gate bounds the requests that wait.
        self.slots = AsyncSemaphore(
            "http lists", most_asked, max_queue=0, timeout_seconds=0.0, clock=clock, share_by_key=True, kept_of=KEPT_OF
        )

    def apply(self, most_asked: int) -> None:
        """Change how many lists are asked for at once."""
        self.slots.set_limit(most_asked)

    def key_of(self, client: WebClient, namespace: str) -> Hashable:
        """Return the fairness key of a list."""
        return self._fairness_keys.key(client, namespace)

    def share_key_of(self, client: WebClient, namespace: str) -> Hashable:
        """Return the key of a list in the share of clients that are awake, and in the line for slots."""
        return self._fairness_keys.share_key(client, namespace)

    @asynccontextmanager
    async def admitted(self, client: WebClient, namespace: str, window_bytes: int) -> AsyncIterator[ListUnderWay]:
        """Yield a list that holds a slot while it is asked for, and the window's permit from the answer on."""
        self._usage.asked(namespace)
        under_way = ListUnderWay(self, client, namespace, window_bytes)
        try:
            yield under_way
        except BaseException as error:
            under_way.ended(_outcome_of(error))
            raise
        else:
            under_way.ended(under_way.outcome)
        finally:
            self._give_back(under_way)

    async def take_slot(self, under_way: ListUnderWay) -> None:
        """Take a slot for the question of a list, unless it has one; raises HttpRefused with 429."""
        slot = under_way.slot
        if slot is not None and not slot.released:
            return
        under_way.slot = await self._acquire(self.slots, 1, under_way, Stage.BROKER_BUSY, under_way.share_key)
        if slot is None and under_way.record is not None:
            under_way.record.question_asked()

    async def waits(self, under_way: ListUnderWay, wait: Callable[[float], Awaitable[T]]) -> T:
        """Return what `wait` brings: the waits of a list together have the time-out of direct memory."""
        began = self._clock.time()
        try:
            return await wait(max(0.0, self._direct.timeout_seconds - under_way.waited_seconds))
        finally:
            under_way.waited_seconds += self._clock.time() - began

    async def take_window(self, under_way: ListUnderWay, *, fits: bool) -> None:
        """Take the permit of the window of a list, and a share before unless it `fits`; the slot ends with the wait."""
        if under_way.permit is not None:
            return
        if under_way.record is not None:
            under_way.record.asks(under_way.window_bytes)
        if self._shares.in_force and not fits:
            awake = self._shares.awake
            under_way.share = await self._acquire(
                awake, under_way.window_bytes, under_way, Stage.DIRECT, under_way.share_key
            )
        under_way.permit = await self._acquire(self._direct, under_way.window_bytes, under_way, Stage.DIRECT)
        under_way.granted_at = self._clock.time()
        if under_way.record is not None:
            under_way.record.granted(under_way.permit.size)
        under_way.question_over()

    async def _acquire(
        self, semaphore: AsyncSemaphore, size: int, under_way: ListUnderWay, stage: Stage, key: Hashable = None
    ) -> Permit:
        key = under_way.key if key is None else key
        try:
            return await self.waits(
                under_way, lambda seconds: semaphore.acquire(size, key=key, timeout_seconds=seconds)
            )
        except PermitAcquireError as error:
            client, namespace = under_way.client, under_way.namespace
            self._counters[LISTS_REFUSED].value += 1
            self._refusals.note(error, stage, semaphore, client.name, namespace)
            self._usage.refused(namespace, client.principal)
            under_way.ended(outcome_of(error, under_way=True))
            raise HttpRefused(429, stage.refusal, _KINDS[stage], retry_after(RETRY_SECONDS)) from error

    def _give_back(self, under_way: ListUnderWay) -> None:
        under_way.question_over()
        under_way.share_ends()
        if under_way.permit is None:
            return
        under_way.permit.release()
        held = under_way.window_bytes * (self._clock.time() - under_way.granted_at)
        self._usage.charge(
            under_way.namespace, under_way.client.principal, byte_seconds=held, sent_bytes=under_way.sent_bytes
        )

    def record_of(self, client: WebClient, namespace: str) -> DirectRecord | None:
        """Return the record of a list that begins now; None without an event log."""
        if self._recorder is None:
            return None
        origin = RequestOrigin(client.principal, client.name, None)
        return DirectRecord(self._recorder, origin, namespace, over_http=True)


def _outcome_of(error: BaseException) -> str:
    """Return the outcome of a list that was refused, or whose task was cancelled because its client has left."""
    if not isinstance(error, HttpRefused):
        return "cancelled"
    return "timeout" if error.status == 504 else "upstream_error"
