"""A group's question at a broker: its answer finds room at the broker and grows the heap permit before it is read.

Room at the broker comes first, and always before that growth: so nothing that has grown waits for room, and an answer
with room waits for nothing but the heap (docs/adr/0036).
"""

import asyncio
from collections.abc import Callable

from limiter.permit import Permit
from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.frames import FrameHead
from protocol.slabs import SlabPool
from protocol.topic_list import TopicListAnswer, heap_size
from proxy.brokers.admitted_request import AdmittedRequest
from proxy.core.errors import OverLimit, RequestFailed
from proxy.core.native import native_class
from proxy.requests.topic_lists.broker_queues import BrokerQueue, BrokerQueues
from proxy.requests.topic_lists.groups import ListGroup
from proxy.telemetry.events.timeline import Step


class ListQuestion(AdmittedRequest[TopicListAnswer]):
    """The question of `group` in `queue`; `heap` is the permit of its estimate, which grows to the answer's cost.

    The caller calls `release_room` when the answer is there, or never will be.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        slabs: SlabPool,
        queues: BrokerQueues,
        queue: BrokerQueue,
        group: ListGroup,
        heap: Permit,
        on_answer_begun: Callable[[], None],
    ) -> None:
        max_bytes = queues.limits.max_answer_bytes
        super().__init__(loop, slabs, CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE, max_bytes, on_answer_begun)
        self._queues = queues
        self._queue = queue
        self._group = group
        self._heap = heap
        self._room: Permit | None = None

    def passes_over(self, head: FrameHead) -> Exception | None:
        """Return the failure of an answer that is too large; None: read it."""
        if self._group.timeline is not None:
            self._group.timeline.heap_actual_bytes = heap_size(head.rest_bytes)
        return super().passes_over(head)

    def try_admit(self, head: FrameHead) -> bool:
        """Take room at the broker, and grow the heap permit to the answer's cost, if that is possible now."""
        needed = heap_size(head.rest_bytes)
        admitted = self._try_take_room(needed) and self._heap.try_update(needed)
        if admitted:
            self._is_read()
        else:
            self._group.stands_at(Step.GROWTH)
        return admitted

    def _try_take_room(self, needed: int) -> bool:
        if not self._queues.several(self._queue):
            return True
        self._room = self._group.try_acquire(self._queue.answers, needed)
        return self._room is not None

    async def admit(self, head: FrameHead, timeout_seconds: float) -> None:
        """Wait until there is room at the broker, and until the heap permit could grow to the answer's cost."""
        needed, deadline = heap_size(head.rest_bytes), self._loop.time() + timeout_seconds
        if self._room is None and self._queues.several(self._queue):
            self._room = await self._group.acquire(self._queue.answers, needed, timeout_seconds=timeout_seconds)
        await self._heap.update(needed, timeout_seconds=max(0.0, deadline - self._loop.time()))
        self._is_read()

    def _is_read(self) -> None:
        self._group.heap_is(self._heap.size)
        self._group.stands_at(Step.READ)

    def release_room(self) -> None:
        """Release the room at the broker: from here on the list's memory is the clients' doing, not the broker's."""
        if self._room is not None:
            self._room.release()

    def make(self, head: FrameHead) -> TopicListAnswer:
        """Return the sink for the list; its names are counted if an event will have their number."""
        counting, scanner = self._group.timeline is not None, native_class("TopicListScanner")
        return TopicListAnswer(head, self._slabs, counting=counting, native=scanner)

    def too_large(self, head: FrameHead) -> RequestFailed:
        """Return the failure of a list above `topicListMaxAnswerBytes`."""
        return OverLimit(
            ServerError.NotAllowedError,
            f"topic list of {head.rest_bytes} bytes exceeds the proxy's topicListMaxAnswerBytes ({self._max_bytes}):"
            " ask with a topics pattern, or raise the limit",
            stage="list_too_large",
            key="topicListMaxAnswerBytes",
            asked=head.rest_bytes,
            limit=self._max_bytes,
        )
