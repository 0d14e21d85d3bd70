"""Serve GET_TOPICS_OF_NAMESPACE under memory limits: the slow path of the proxy, as readable functions (PIP-442).

Equal requests form a group (`proxy.requests.topic_lists.groups`). Once for each group: heap permit for an estimate ->
question to the broker -> permit grown to the real size before the body is read -> decoded while it arrives -> direct
permit for the encoded size -> encoded -> heap permit ends. For each member: written when its client reads; the direct
permit ends with the last. Every wait of a member ends with its client's connection or with its own clock; every wait of
a group ends with its last member or with the limiter's timeout.
"""

import asyncio
import traceback
from functools import partial
from typing import Final

from limiter.dual import AsyncDualMemoryLimiter
from limiter.errors import PermitAcquireError
from limiter.permit import Permit
from protocol import commands
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from protocol.topic_list import TopicListAnswer, heap_size
from proxy.auth.fairness_key import Charging
from proxy.brokers.target import BrokerAddress
from proxy.core.errors import OverLimit, ProxyError, RequestFailed, request_failure
from proxy.core.loop_budget import LoopBudget
from proxy.core.tasks import TaskScope
from proxy.net.pump import Pump
from proxy.requests.client import ClientView
from proxy.requests.topic_lists.bodies import encode
from proxy.requests.topic_lists.groups import (
    GroupFailure,
    GroupMember,
    ListGroup,
    ListGroups,
    SharedAnswer,
    await_a_reader,
    too_large_for,
)
from proxy.requests.topic_lists.questions import ListQuestions, TopicListLimits
from proxy.requests.topic_lists.sizes import ListSizes
from proxy.requests.validation import check_get_topics
from proxy.telemetry.counters import Counters
from proxy.telemetry.events.recorder import RequestRecord
from proxy.telemetry.events.timeline import Part
from proxy.telemetry.heavy_hitters import UsageTracker
from proxy.telemetry.refusals import RefusalLog, Stage

# uvloop's clock and timers count whole milliseconds, so that the clock of one request may end just before its deadline.
TIMER_SECONDS: Final = 0.002
# So many equal requests at once are a burst, of which more may be put off; those that one client pipelines are not.
A_BURST: Final = 8

OUTCOMES: Final = ("answered", *dict.fromkeys(stage.outcome for stage in Stage), "failed", "cancelled")


class TopicListService:
    """Serve topic-list requests: each gets exactly one answer, or its client is gone."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limiter: AsyncDualMemoryLimiter,
        questions: ListQuestions,
        pump: Pump,
        turns: LoopBudget,
        sizes: ListSizes,
        charging: Charging,
        counters: Counters,
        refusals: RefusalLog,
        usage: UsageTracker,
    ) -> None:
        self._loop = loop
        self._limiter = limiter
        self._questions = questions
        self._pump = pump
        self._turns = turns
        self._sizes = sizes
        self._counters = counters
        self._refusals = refusals
        self._usage = usage
        self._groups = ListGroups(loop, charging.key)
        self._scope = TaskScope(lambda error: counters.internal_error(error, "topic list group"))

    @property
    def groups(self) -> ListGroups:
        """Give the groups under way, to look at."""
        return self._groups

    @property
    def questions(self) -> ListQuestions:
        """Give what bounds the questions to brokers, to look at."""
        return self._questions

    def apply(self, limits: TopicListLimits) -> None:
        """Take over changed limits; requests under way keep their clocks."""
        self._questions.apply(limits)

    async def close(self) -> None:
        """End what is still under way: no client is left."""
        self._scope.cancel()
        await self._scope.emptied()

    # --- a member's side --------------------------------------------------------------------------

    async def serve(
        self,
        client: ClientView,
        broker: BrokerAddress,
        request: pb.CommandGetTopicsOfNamespace,
        arrived: float,
        record: RequestRecord | None = None,
    ) -> None:
        """Answer one request that came at `arrived` (loop time) with exactly one frame, or find the client gone."""
        try:
            check_get_topics(request)
            self._usage.asked(request.namespace)
            failure = await self._serve(client, broker, request, arrived, record)
            if failure is None:
                self._counters.list_ended("answered")
                if record is not None:
                    record.answered()
            else:
                self._fail(client, request, failure, record)
        except asyncio.CancelledError:
            self._cancelled(record)
            raise
        except Exception as error:
            if client.gone:
                self._cancelled(record)
                return
            self._fail(client, request, error, record)

    def _cancelled(self, record: RequestRecord | None) -> None:
        self._counters.list_ended("cancelled")
        if record is not None:
            record.cancelled()

    async def _serve(
        self,
        client: ClientView,
        broker: BrokerAddress,
        request: pb.CommandGetTopicsOfNamespace,
        arrived: float,
        record: RequestRecord | None,
    ) -> Exception | None:
        """Write the answer; returns what its group failed with, which is shared and so must not be raised."""
        deadline = arrived + self._questions.limits.request_timeout_seconds
        if deadline <= self._loop.time() + TIMER_SECONDS:
            # It waited too long for its turn: the broker must not be asked for a client that gave up.
            raise GroupFailure(TimeoutError(), Stage.CLIENT_BUSY)
        group, member = self._join(client, broker, request, arrived, record)
        try:
            async with asyncio.timeout_at(deadline) as clock:
                answer = await member.outcome
                if isinstance(answer, Exception):
                    return answer
                async with client.output.list_lane:
                    member.redeem()
                    # From here the client's own reading decides: a body under way is never cut by the clock.
                    clock.reschedule(None)
                    await answer.write_to(client, request.request_id)
                    self._usage.charge(request.namespace, client.principal, byte_seconds=0, sent_bytes=answer.size)
                    if record is not None:
                        record.sent(request.request_id, answer.size)
                    return None
        except TimeoutError as error:
            raise GroupFailure(error, group.stopped_at()) from None
        finally:
            group.leave(member)
            # It knows its task, and a cancelled task knows this frame: the two would keep the list.
            del clock

    def _join(
        self,
        client: ClientView,
        broker: BrokerAddress,
        request: pb.CommandGetTopicsOfNamespace,
        arrived: float,
        record: RequestRecord | None,
    ) -> tuple[ListGroup, GroupMember]:
        share = self._questions.limits.coalescing
        group, member, new = self._groups.join(client, broker, request, share=share, since=arrived)
        if record is not None:
            record.joined(group)
        if new:
            story = group.story
            group.cancel = self._scope.start(self._work(group), None if story is None else story.work_over)
            self._counters.list_groups += 1
        else:
            self._counters.lists_joined += 1
        return group, member

    def _fail(
        self,
        client: ClientView,
        request: pb.CommandGetTopicsOfNamespace,
        error: Exception,
        record: RequestRecord | None,
    ) -> None:
        failed = error if isinstance(error, GroupFailure) else GroupFailure(error, Stage.BROKER)
        error, stage = failed.error, failed.stage
        failure, outcome = request_failure(error), "failed"
        if isinstance(error, PermitAcquireError | TimeoutError):
            failure, outcome = RequestFailed(ServerError.TooManyRequests, stage.refusal), stage.outcome
            semaphore = {Stage.DIRECT: self._limiter.direct, Stage.HEAP: self._limiter.heap}.get(stage)
            self._refusals.note(error, stage, semaphore, client.name, request.namespace)
            self._usage.refused(request.namespace, client.principal)
        elif isinstance(error, OverLimit):
            self._refusals.note_over_limit(error, client.name, request.namespace)
        elif not isinstance(error, ProxyError):
            self._counters.internal_error(error, "topic list")
        self._counters.list_ended(outcome)
        client.output.send(commands.error(request.request_id, failure.code, failure.message))
        if record is not None:
            record.failed(error)

    # --- a group's side ---------------------------------------------------------------------------

    async def _work(self, group: ListGroup) -> None:
        try:
            await self._exchange(group)
        except Exception as error:
            # The frames it came through hold the list, whose permit has ended.
            traceback.clear_frames(error.__traceback__)
            self._settle_all(group, GroupFailure(error, group.stopped_at()))
        finally:
            self._groups.ended(group)
            group.work_over()

    def _settle_all(self, group: ListGroup, outcome: SharedAnswer | Exception) -> None:
        for member in group.members:
            self._turns.later(partial(member.settle, outcome))

    async def _exchange(self, group: ListGroup) -> None:
        if group.predecessor is not None:
            await group.predecessor.wait()
            group.predecessor = None
        if len(group.members) >= A_BURST:
            # Others that have arrived with them are put off only for the loop's sake: they belong to this question.
            await self._turns.passed()
        estimate = self._sizes.estimate(group.request)
        line = self._questions.lanes(group.broker).estimates
        group.stands_at(Stage.HEAP, Part.HEAP)
        story = group.story
        if story is not None:
            story.heap_estimate_bytes = estimate
        with await line.acquire(estimate, charge=group.charge(line, estimate)) as gate:
            memory = self._limiter.heap
            with await memory.acquire(estimate, charge=group.charge(memory, estimate)) as heap:
                began = self._loop.time()
                if story is not None:
                    story.heap_held(heap.size)
                try:
                    await self._answer(group, heap, gate)
                finally:
                    self._charge(group, began, heap.requested)
                    if story is not None:
                        story.heap_over()

    async def _answer(self, group: ListGroup, heap: Permit, gate: Permit) -> None:
        def begun() -> None:
            gate.release()
            self._groups.answer_begun(group)

        asked = partial(self._groups.asked, group)
        answer = await self._questions.ask(group, heap, asked, begun, self._sizes.initial_bytes)
        group.stands_at(Stage.CLIENT_BUSY, Part.READER)
        self._note(group, answer)
        takers = self._takers(group, answer)
        if not takers:
            return
        await await_a_reader(takers)
        direct = await self._direct(group, answer)
        try:
            group.answer = await encode(answer, len(takers), direct, self._pump, group.story)
        except BaseException:
            direct.release()
            if group.story is not None:
                group.story.direct_over()
            raise
        heap.release()
        if group.story is not None:
            group.story.heap_over()
        if len(group.members) == 1:
            group.charged_member.settle(group.answer)
        else:
            self._settle_all(group, group.answer)

    async def _direct(self, group: ListGroup, answer: TopicListAnswer) -> Permit:
        """Wait for direct memory for the encoded list; the group's cost counts from there until its end."""
        request_id, memory, story = group.charged_member.request_id, self._limiter.direct, group.story
        size = answer.encoded_size(request_id)
        group.stands_at(Stage.DIRECT, Part.DIRECT)
        if story is not None:
            story.asks_direct(size, request_id)
        direct = await memory.acquire(size, charge=group.charge(memory, size))
        group.on_end = partial(self._charge, group, self._loop.time(), size)
        group.stage = Stage.CLIENT_BUSY
        if story is not None:
            story.direct_held(direct.size)
        return direct

    def _charge(self, group: ListGroup, began: float, held_bytes: int) -> None:
        """Count memory that was held since `began` for the namespace, and for who asked first."""
        byte_seconds = held_bytes * (self._loop.time() - began)
        self._usage.charge(group.request.namespace, group.principal, byte_seconds=byte_seconds, sent_bytes=0)

    def _note(self, group: ListGroup, answer: TopicListAnswer) -> None:
        found = answer.scanner
        self._counters.list_name_bytes += found.name_bytes
        if group.story is not None:
            group.story.decoded(found.topic_count, found.name_bytes, filtered=found.filtered, changed=found.changed)
        if found.changed:
            self._sizes.learn(group.request, heap_size(answer.size))

    def _takers(self, group: ListGroup, answer: TopicListAnswer) -> list[GroupMember]:
        """Give the members whose clients accept a frame of that size; the others are told that theirs do not."""
        takers = []
        frame_bytes = answer.encoded_size(group.charged_member.request_id)
        for member in group.members:
            if frame_bytes <= member.client.max_frame_bytes:
                takers.append(member)
            else:
                failure = too_large_for(member.client, answer.scanner.topic_count, frame_bytes)
                self._turns.later(partial(member.settle, failure))
        return takers
