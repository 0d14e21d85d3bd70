"""Serve GET_TOPICS_OF_NAMESPACE under memory limits: the slow path of the proxy, as readable functions (PIP-442).

Equal requests form a group (`proxy.requests.topic_lists.groups`). The twelve steps of a list, in the order in which
this module has them: a member joins its group (1); the group waits for the question before its own (2), reserves its
estimate on the broker (3) and takes a heap permit for it (4); it takes one of the broker's slots (5) and asks over a
pooled connection (6); the heap permit grows to the real size before the body is read (7), which is decoded while it
arrives (8); when a client is ready for the list (9) the group takes a direct permit for the encoded size (10), encodes
the list and ends the heap permit (11); each member writes the list to its client (12), and the direct permit ends with
the last. A list that may not wait for direct memory in heap memory begins again at step 3, once, with a turn
(`proxy.requests.topic_lists.unproven`). Every wait of a member ends with its client's connection or with its own clock;
every wait of a group ends with its last member or with the limiter's timeout.
"""

import asyncio
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from limiter.errors import PermitAcquireError
from limiter.permit import Permit
from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from protocol.topic_list import CountingScanner, TopicListAnswer, heap_size
from proxy.brokers.pool import PoolKey, Purpose
from proxy.brokers.side import BrokerSide
from proxy.brokers.target import BrokerAddress
from proxy.config.core import Core
from proxy.core.counters import PREFIX, Counters, Derived, counter, counter_by
from proxy.core.errors import FAIL_OVER, OutOfMemory, OverLimit, ProxyError, RequestFailed, request_failure
from proxy.core.tasks import CoarseDeadlines, TaskClock, TaskScope
from proxy.net.body_turn import ReaderShare
from proxy.net.pump import Pump
from proxy.requests.arriving import ArrivingAnswers
from proxy.requests.client import Client
from proxy.requests.topic_lists.bodies import EncodedList, encode, too_large_for
from proxy.requests.topic_lists.broker_queues import TopicListLimits
from proxy.requests.topic_lists.groups import (
    GroupFailure,
    GroupMember,
    ListGroup,
    ListGroups,
    await_a_reader,
    reserve_first_ready,
)
from proxy.requests.topic_lists.heap_crowds import AskAgain
from proxy.requests.topic_lists.memory import ListMemory
from proxy.requests.topic_lists.question import ListQuestion
from proxy.requests.validation import check_get_topics
from proxy.telemetry.events.recorder import RequestRecord
from proxy.telemetry.events.reports import Reports
from proxy.telemetry.events.timeline import Step
from proxy.telemetry.refusals import Stage

# uvloop's clock and timers count whole milliseconds, so that the clock of one request may end just before its deadline.
TIMER_SECONDS: Final = 0.002
# So many equal requests at once are a burst, of which more may be deferred; requests that one client pipelines are not.
A_BURST: Final = 8

OUTCOMES: Final = ("answered", *dict.fromkeys(stage.outcome for stage in Stage), "failed", "cancelled")
# An answer that begins within this time counts as prompt (docs/monitoring.md, the objective).
PROMPT_SECONDS: Final = 1.0
# Errors for what a request asked: no proxy and no broker could have answered it.
_OF_THE_REQUEST: Final = frozenset(
    {
        ServerError.AuthenticationError,
        ServerError.AuthorizationError,
        ServerError.UnsupportedVersionError,
        ServerError.TopicNotFound,
        ServerError.InvalidTopicName,
        ServerError.NotAllowedError,
    }
)

ANSWERS: Final = counter_by("outcome", "lists_answers", "Topic list requests by outcome.", OUTCOMES)
DUE: Final = counter(
    "lists_due",
    "Topic list requests that count for the objective: all but those whose client left, and those that a "
    "broker or the proxy refused for what they asked.",
)
PROMPT: Final = counter("lists_prompt", "Those of them whose answer began, or was on disk, within a second.")
QUESTIONS: Final = counter(
    "lists_questions", "Topic list requests that the proxy sent to brokers; equal client requests share one."
)
ASKED_AGAIN: Final = counter(
    "lists_asked_again", "Topic list requests sent to a broker again because their connection was lost."
)
GIVEN_UP: Final = counter(
    "lists_given_up", "Topic lists given up because a broker sent them too slowly while others waited for heap memory."
)
JOINED: Final = counter("lists_joined", "Topic list requests of clients that joined an earlier, equal request.")
GROUPS: Final = counter("lists_groups", "Groups of equal topic list requests, which share an answer.")
SHARING: Final[Derived[Counters]] = Derived(
    f"{PREFIX}lists_coalescing_ratio",
    "gauge",
    "Average number of requests in a group since the start; 1: no answer was shared.",
    lambda counters: 1 + counters[JOINED].value / (counters[GROUPS].value or 1),
    unit="ratio",
)
ANSWER_BYTES: Final = counter(
    "lists_answer_bytes",
    "Bytes of brokers' topic lists: the names and 2 to 4 bytes for each, and some for the flags.",
    "bytes",
)


@dataclass(slots=True)
class ListRequest:
    """A client's request that came at `arrived` (loop time); `begun`: the service serves it and counts its end.

    `behind`: an earlier list of the client is under way. `on_disk` is called once if the list moves to disk before it
    has been written.
    """

    client: Client
    request: pb.CommandGetTopicsOfNamespace
    arrived: float
    record: RequestRecord | None = None
    on_disk: Callable[[], None] | None = None
    begun: bool = False
    behind: bool = False


class TopicListService:
    """Serve topic-list requests: each gets exactly one answer, or its client is gone."""

    def __init__(
        self,
        core: Core,
        memory: ListMemory,
        side: BrokerSide,
        pump: Pump,
        reports: Reports,
    ) -> None:
        self._loop = core.loop
        self._limiter = memory.limiter
        self._unproven = memory.unproven
        self.queues = memory.queues
        self._pool = side.pool
        self._brokers = side.brokers
        self._slabs = memory.slabs
        self._pump = pump
        self._loop_budget = core.loop_budget
        self._sizes = memory.sizes
        self._counters = core.counters
        self._refusals = reports.refusals
        self._usage = reports.usage
        self._spill = memory.spill
        keys = memory.fairness_keys
        self._clocks: CoarseDeadlines[TaskClock] = CoarseDeadlines(core.loop, TaskClock.run_out)
        self.groups = ListGroups(core.loop, keys.key, keys.share_key)
        core.counters.derive((SHARING,), lambda: core.counters)
        # Swept once a second (`proxy.app.proxy`).
        self.arriving = ArrivingAnswers("topic list", core.counters[GIVEN_UP])
        self._scope = TaskScope(lambda error: core.counters.internal_error(error, "topic list group"))

    @property
    def working(self) -> int:
        """Count the lists that are being worked on."""
        return len(self._scope)

    def apply(self, limits: TopicListLimits) -> None:
        """Apply changed limits; requests under way keep their clocks."""
        self.queues.apply(limits)

    async def close(self) -> None:
        """Cancel the work that is still under way: no client is left."""
        self._scope.cancel()
        await self._scope.emptied()

    # --- the twelve steps -------------------------------------------------------------------------

    async def serve(self, asked: ListRequest) -> None:
        """Answer one request with exactly one frame, or find the client gone."""
        asked.begun = True
        left_already = asked.client.gone
        if left_already:
            # The client left in the iteration of the loop in which its request came.
            self.cancelled(asked)
            return
        try:
            check_get_topics(asked.request)
            self._usage.asked(asked.request.namespace)
            ended = await self._answer(asked)
            if isinstance(ended, Exception):
                self._fail(asked, ended)
                return
            self._counters[ANSWERS]["answered"] += 1
            if asked.record is not None:
                asked.record.answered(asked.request, ended)
        except asyncio.CancelledError:
            self.cancelled(asked)
            raise
        except Exception as error:
            if asked.client.gone:
                self.cancelled(asked)
            else:
                self._fail(asked, error)

    async def _answer(self, asked: ListRequest) -> Exception | int:
        """Write the answer, and return its bytes or the failure that the members of the group share: none raises it."""
        client, request, arrived = asked.client, asked.request, asked.arrived
        limits = self.queues.limits
        deadline = arrived + limits.request_timeout_seconds
        if deadline <= self._loop.time() + TIMER_SECONDS:
            # The request waited too long for its turn: the broker must not be asked for a client that gave up.
            raise GroupFailure(TimeoutError(), Stage.CLIENT_BUSY)
        # Step 1: join the requests that ask the same, or begin a group.
        broker = self._brokers.home(request.namespace)
        # A list behind another may find no room in the send buffer: the one before may have it.
        size = None if asked.behind else self._sizes.known(request)
        unproven = self._unproven.holds(client.output, size)
        group, member, new = self.groups.join(
            client, broker, request, share=limits.coalescing, by_role=limits.shared_by_role, unproven=unproven,
            since=arrived, record=asked.record,
        )  # fmt: skip
        group.behind = asked.behind and (new or group.behind)
        if new:
            group.work_started(self._scope.start(self._work(group), group.work_over))
            self._counters[GROUPS].value += 1
        else:
            self._counters[JOINED].value += 1
            self._unproven.joined(group, member)
        try:
            with TaskClock(self._clocks, deadline) as clock:
                answer = await member.outcome
                if isinstance(answer, Exception):
                    return answer
                sent_bytes = await self._write(asked, answer, clock, group)
                began = self._loop.time() if clock.stopped_at is None else clock.stopped_at
                self._counters[DUE].value += 1
                self._counters[PROMPT].value += began - arrived <= PROMPT_SECONDS
                return sent_bytes
        except TimeoutError as error:
            raise GroupFailure(error, group.step.stage) from None
        finally:
            if group.leave(member):
                self._account(group, group.direct_since, group.direct_bytes)
            # The clock knows its task, and a cancelled task knows this frame: the two would keep the list.
            del clock

    async def _work(self, group: ListGroup) -> None:
        try:
            await self._exchange(group)
        except Exception as error:
            # The traceback's frames keep the list alive after its permit was released.
            traceback.clear_frames(error.__traceback__)
            self._settle_all(group, GroupFailure(error, group.step.stage))
        finally:
            if group.answer is None:
                group.end_share()
            if group.unproven:
                self._unproven.question_over(group)
            self.groups.ended(group)

    async def _exchange(self, group: ListGroup) -> None:
        """Ask the broker and encode its answer, with heap memory held from before the question to the encoded list."""
        # Step 2: wait until the answer to an equal question has begun.
        if group.predecessor is not None:
            await group.predecessor.wait()
            group.predecessor = None
        if len(group.members) >= A_BURST:
            # Requests that arrived with these are deferred only for the loop's sake: they belong to this question.
            await self._loop_budget.deferred_done()
        try:
            await self._ask_and_share(group)
            return
        except AskAgain:
            # The question needed no turn, for its client read. Now the client stands, and heap memory is for others.
            group.asks_again()
        await self._ask_and_share(group)

    async def _ask_and_share(self, group: ListGroup) -> None:
        """Take the list's path from its turn to its members; raises AskAgain if the list is to begin anew there."""
        estimate = self._sizes.estimate(group.request)
        queue = self.queues.queue(group.broker)
        if group.unproven:
            await self._unproven.may_ask(group, queue, self._sizes.known(group.request))
        group.stands_at(Step.HEAP)
        if group.timeline is not None:
            group.timeline.heap_estimate_bytes = estimate
        # Step 3: reserve the estimate on the broker. Step 4: take heap memory for it.
        with (
            await group.acquire(queue.reservations, estimate) as reservation,
            await group.acquire(self._limiter.heap, estimate) as heap,
        ):
            began = self._loop.time()
            group.heap_is(heap.size)
            try:
                await self._share(group, await self._ask(group, reservation, heap), heap)
            finally:
                self._account(group, began, heap.requested)
                group.heap_is(None)

    async def _ask(self, group: ListGroup, reservation: Permit, heap: Permit) -> TopicListAnswer:
        """Return the broker's answer; a question whose broker failed is asked once more, on another if there is one.

        Raises RequestFailed, ConnectionClosed, BrokerUnavailable, TargetRefused or PermitAcquireError.
        """
        key = group.request.namespace
        group.stands_at(Step.CONNECTION)
        broker = await self._brokers.usable(group.broker, key)
        try:
            return await self._ask_broker(broker, group, reservation, heap)
        except FAIL_OVER:
            group.stands_at(Step.CONNECTION)
            broker = await self._brokers.pick(key, avoid=broker)
            self._counters[ASKED_AGAIN].value += 1
            heap.try_update(self._sizes.initial_bytes)
            group.heap_is(heap.size)
            return await self._ask_broker(broker, group, reservation, heap)

    async def _ask_broker(
        self, broker: BrokerAddress, group: ListGroup, reservation: Permit, heap: Permit
    ) -> TopicListAnswer:
        ask = partial(self._ask_once, broker, group, reservation, heap)
        if not group.by_role:
            return await ask()
        from proxy.requests.topic_lists.lenders import ask_as_a_member

        return await ask_as_a_member(group, ask, self._loop_budget)

    async def _ask_once(
        self, broker: BrokerAddress, group: ListGroup, reservation: Permit, heap: Permit
    ) -> TopicListAnswer:
        # Step 5: take one of the broker's slots. Both end when the answer begins, or when it cannot come any more.
        group.stands_at(Step.SLOT)
        queue = self.queues.queue(broker)
        slot = await group.acquire(queue.in_flight, 1)
        answer_begun = partial(self.groups.answer_begun, group, slot, reservation)
        pending = ListQuestion(self._loop, self._slabs, self.queues, queue, group, heap, answer_begun)
        try:
            # Step 6: ask over a connection that has the principal of a client.
            group.stands_at(Step.CONNECTION)
            connection = await self._pool.connection(PoolKey(broker, group.principal, Purpose.LISTS))
            request_id = connection.new_request_id()
            self.groups.asked(group)
            self._counters[QUESTIONS].value += 1
            frame = commands.forwarded_request(CommandType.GET_TOPICS_OF_NAMESPACE, group.request, request_id)
            connection.ask(pending, request_id, frame)
        except BaseException:
            slot.release()
            raise
        group.stands_at(Step.QUESTION)
        if group.timeline is not None:
            group.timeline.broker = broker
        longest_wait = self._limiter.heap.timeout_seconds
        self.arriving.watch(pending, partial(self.queues.awaited, queue))
        try:
            # Step 7: the pending answer grows the heap permit. Step 8: the answer is decoded while it arrives.
            answer = await pending.answer(connection, 2 * longest_wait, longest_wait)
        finally:
            self.arriving.forget(pending)
            pending.release_room()
        group.stands_at(Step.READER)
        return answer

    async def _share(self, group: ListGroup, answer: TopicListAnswer, heap: Permit) -> None:
        """Encode the list under direct memory, and settle the members with it."""
        self._learn(group, answer)
        request_id = group.first_member.request_id
        size = answer.encoded_size(request_id)
        recipients = await self._recipients(group, answer, size)
        if not recipients:
            return
        # Step 9: wait until a client is ready for the list.
        if not reserve_first_ready(recipients):
            ready = await_a_reader(recipients, heap.size, without_turn=not group.unproven)
            await (self._unproven.behind(group, heap.size, ready) if group.unproven else ready)
        # Step 10: take direct memory for the encoded list; its cost counts from here until the group's end.
        if request_id != group.first_member.request_id:
            request_id = group.first_member.request_id
            size = answer.encoded_size(request_id)
        group.stands_at(Step.DIRECT)
        if group.timeline is not None:
            group.timeline.direct_bytes = size
        group.share = await self._unproven.share_for(group, recipients, size, heap.size)
        direct = await group.acquire(self._limiter.direct, size)
        group.direct_granted(self._loop.time(), size, direct)
        # Step 11: encode the list; heap memory ends.
        try:
            behind_disk = all(member.client.output.write_lock.on_disk for member in recipients)
            group.answer = await encode(
                answer, len(recipients), direct, group.timeline, self._spill, behind_disk=behind_disk
            )
        except BaseException:
            direct.release()
            group.direct_over()
            raise
        group.answer.on_moved(partial(self._moved_to_disk, group))
        heap.release()
        group.heap_is(None)
        if len(group.members) == 1:
            group.first_member.settle(group.answer)
        else:
            self._settle_all(group, group.answer)

    async def _write(
        self,
        asked: ListRequest,
        answer: EncodedList,
        clock: TaskClock,
        share: ReaderShare,
    ) -> int:
        """Write the list to a member's client, once that has taken its earlier lists; return the bytes of the frame."""
        output, prefix = asked.client.output, answer.prefix(asked.request.request_id)
        on_moved = partial(_moved, asked, clock)
        answer.on_moved(on_moved)
        try:
            # Step 12: write the list. From its first byte only the rules for slow readers end it: no clock cuts a body.
            await output.send_pumped(prefix, answer.body, self._pump, clock=clock, share=share)
        finally:
            answer.forget(on_moved)
            del clock, on_moved
        self._usage.charge(asked.request.namespace, asked.client.principal, byte_seconds=0, sent_bytes=answer.size)
        return len(prefix) + answer.size

    # --- ends of requests and groups --------------------------------------------------------------

    def cancelled(self, asked: ListRequest) -> None:
        """Count a request whose client has left."""
        self._counters[ANSWERS]["cancelled"] += 1
        if asked.record is not None:
            asked.record.cancelled(asked.request, asked.client.cause)

    def _fail(self, asked: ListRequest, error: Exception) -> None:
        client, request = asked.client, asked.request
        failed = error if isinstance(error, GroupFailure) else GroupFailure(error, Stage.BROKER)
        error, stage = failed.error, failed.stage
        failure, outcome = request_failure(error), "failed"
        if isinstance(error, PermitAcquireError | TimeoutError):
            failure, outcome = RequestFailed(ServerError.TooManyRequests, stage.refusal), stage.outcome
            direct = self._unproven.memory_that_refused(error)
            semaphore = {Stage.DIRECT: direct, Stage.HEAP: self._limiter.heap}.get(stage)
            self._refusals.note(error, stage, semaphore, client.name, request.namespace)
            self._usage.refused(request.namespace, client.principal)
        elif isinstance(error, OverLimit):
            self._refusals.note_over_limit(error, client.name, request.namespace)
        elif isinstance(failure, OutOfMemory):
            self._refusals.note_out_of_memory(failure, client.name, request.namespace)
        elif not isinstance(error, ProxyError):
            self._counters.internal_error(error, "topic list")
        if not _own_fault(failure.code, stage):
            self._counters[DUE].value += 1
        self._counters[ANSWERS][outcome] += 1
        client.output.send(commands.error(request.request_id, failure.code, failure.message))
        if asked.record is not None:
            asked.record.failed(request, error)

    def _settle_all(self, group: ListGroup, outcome: EncodedList | Exception) -> None:
        for member in group.members:
            self._loop_budget.defer_settling(group, partial(member.settle, outcome))

    def _moved_to_disk(self, group: ListGroup) -> None:
        group.moved_to_disk()
        group.end_share()
        self._account(group, group.direct_since, group.direct_bytes)
        # The rest of the group's life costs no memory.
        group.direct_bytes = 0

    # --- sizes and accounts -----------------------------------------------------------------------

    async def _recipients(self, group: ListGroup, answer: TopicListAnswer, frame_bytes: int) -> list[GroupMember]:
        """Return the members whose clients accept a frame of that size; settle the others with a failure."""
        members = list(group.members)
        recipients = [member for member in members if frame_bytes <= member.client.max_frame_bytes]
        if len(recipients) == len(members):
            return recipients
        # The failure has the number of topics, which nobody needs otherwise.
        topics = 0
        for counted in answer.count():
            await asyncio.sleep(0)
            topics = counted.topic_count
        for member in members:
            if frame_bytes > member.client.max_frame_bytes:
                failure = too_large_for(member.client, topics, frame_bytes)
                self._loop_budget.defer_settling(group, partial(member.settle, failure))
        return recipients

    def _learn(self, group: ListGroup, answer: TopicListAnswer) -> None:
        found = answer.scanner
        self._counters[ANSWER_BYTES].value += answer.size
        if (timeline := group.timeline) is not None and isinstance(found, CountingScanner):
            timeline.topic_count, timeline.name_bytes = found.topic_count, found.name_bytes
            timeline.filtered, timeline.unchanged = found.filtered, not found.changed
        if found.changed:
            known = self._sizes.learn(group.request, heap_size(answer.size))
            self._unproven.learn(answer.size, known=known, chosen=group.request.HasField("topics_pattern"))

    def _account(self, group: ListGroup, since: float, held_bytes: int) -> None:
        """Count memory that was held since then for the namespace, and for the client that asked first."""
        byte_seconds = held_bytes * (self._loop.time() - since)
        self._usage.charge(group.request.namespace, group.principal, byte_seconds=byte_seconds, sent_bytes=0)


def _own_fault(code: int, stage: Stage) -> bool:
    """Return whether a list failed for what its client asked or did: nothing could have answered that.

    A broker that refuses the proxy's own connection is no fault of a client, whatever the code says.
    """
    return stage is Stage.CLIENT_BUSY or (code in _OF_THE_REQUEST and stage is not Stage.BROKER_CONNECTION)


def _moved(asked: ListRequest, clock: TaskClock) -> None:
    """Stop the clock of a request whose list is on disk: such a list waits for nobody but its own client."""
    clock.stop()
    if asked.on_disk is not None:
        asked.on_disk()
