"""Record topic lists: one event for each request at its end, however the request ends; recording delays no request.

Rules: what is not known is null, never guessed. The event of an answered request is made a little later, together with
others, since nothing about the request changes any more; the event of any other request is made at once, while its
waits are still known. An error in here is reported and costs an event, never an answer. Without an event log there is
no recorder, and requests carry `NO_RECORD`, which does nothing.

Every request of the binary port that is decoded has one event: requests that are refused at once end at the stage
`client`, with no time in any stage. Frames larger than 4 KiB, and frames that are no request (as text that is not
UTF-8), are refused before that, without an event and without being counted as requests. Requests over HTTP, whose
`question_hash` is null, and frames for watchers belong to no group, and each carries its own cost.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple, Protocol

from eventlog.schema import FIELDS, LATER_LIMITS, STAGES
from eventlog.sink import STAMPED, EventSink
from limiter.dual import AsyncDualMemoryLimiter
from protocol.command_type import CommandType
from protocol.commands import topic_list_question
from protocol.frames import answer_prefix
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.fairness_key import FairnessKeys, role_of
from proxy.core.errors import DisconnectCause, OverLimit
from proxy.telemetry.events.identities import EventIdentities, bounded
from proxy.telemetry.events.outcomes import close_cause_of, outcome_of
from proxy.telemetry.events.timeline import (
    NO_TIMELINE,
    STAGE_FIELDS,
    NoTimeline,
    RequestTimeline,
    TimelineStage,
    stages_between,
)

__all__ = ["NO_RECORD", "Moment", "NoRecord", "Recorder", "RequestOrigin", "RequestRecord", "request_record"]

_MODES: Final = pb.CommandGetTopicsOfNamespace.Mode
_MODE_NAMES: Final[dict[int, str]] = {
    _MODES.PERSISTENT: "PERSISTENT",
    _MODES.NON_PERSISTENT: "NON_PERSISTENT",
    _MODES.ALL: "ALL",
}
_LIST: Final = CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE
# Requests that waited for their turn are recorded for 3 ms in each iteration of the loop.
MOST_ITERATIONS: Final = 10_000
# Events made in a row take a third of the time of events made one by one between lists, which leave nothing of the
# recorder in the processor's caches. 64 of them hold the loop up for about a millisecond.
TOGETHER: Final = 64
LONGEST_WAIT_SECONDS: Final = 0.1
# The value of each field when nothing is known, in the order of the schema.
_NOTHING: Final[dict[str, object]] = {
    field.name: None if field.nullable else {"bool": False, "string": ""}.get(field.type, 0)
    for field in FIELDS
    # Other later fields are those of other kinds of events.
    if field.name not in STAMPED and (field.since == 1 or field.name in LATER_LIMITS)
}


# The state of the limiters when a request arrived: the arrival (monotonic, in nanoseconds), the number of waiters for
# heap and for direct memory, the bytes held of each, and the event that has all limits in force and nothing else. A
# plain tuple: making a named tuple takes seven times as long, and the request's first steps wait for this.
Moment = tuple[int, int, int, int, int, dict[str, object]]


class RequestOrigin(NamedTuple):
    """The client behind a request: its principal, its connection's name, and the version that it named."""

    principal: Any
    name: str
    client_version: str | None


class RecordedClient(Protocol):
    """A client whose requests are recorded (`proxy.requests.client.ClientView`)."""

    principal: Any
    name: str
    client_version: str | None
    cause: DisconnectCause | None


class RequestLimits(Protocol):
    """The limits in force that events name (`proxy.requests.topic_lists.broker_queues.TopicListLimits`)."""

    @property
    def request_timeout_seconds(self) -> float:
        """Return the time of a request."""

    @property
    def max_outstanding_per_broker(self) -> int:
        """Return the number of questions at one broker."""

    @property
    def key_cap_percent(self) -> int:
        """Return the part of the memory that one key may hold."""

    @property
    def shared_by_role(self) -> bool:
        """Return whether clients of one role share answers, whatever their credentials."""

    @property
    def coalescing(self) -> bool:
        """Return whether equal requests share an answer."""

    @property
    def unproven_readers_percent(self) -> int:
        """Return the part of direct memory for clients that have not shown that they read."""

    @property
    def spill_limit_bytes(self) -> int:
        """Return the room on disk for the lists of slow readers, 0 without a disk."""


class HeapWaits(Protocol):
    """The waiters for heap memory, and the limits in force (`proxy.requests.topic_lists.broker_queues`)."""

    @property
    def limits(self) -> RequestLimits:
        """Return the limits in force."""

    @property
    def heap_queue_size(self) -> int:
        """Return the number of waiters for heap memory, on all brokers."""


class Recorder:
    """Makes events of requests, and hands them to `sink`. `now` is monotonic, `wall` since 1970; nanoseconds.

    `later` calls a function after so many seconds; without it each event is made at once. `open` counts the requests of
    the binary port that are under way.
    """

    def __init__(
        self,
        sink: EventSink,
        identities: EventIdentities,
        limiter: AsyncDualMemoryLimiter,
        questions: HeapWaits,
        fairness_keys: FairnessKeys,
        crashed: Callable[[BaseException], None],
        now: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self.now = now
        self.identities = identities
        self.crashed = crashed
        # Called with whole events.
        self.put = sink.put
        self._limiter = limiter
        self._questions = questions
        self._fairness_keys = fairness_keys
        self._wall = wall
        self._groups = 0
        self.open = 0
        self._in_force: dict[str, object] = {}
        self._broker: object = None
        self._broker_name = ""
        # At most TOGETHER records whose requests are over.
        self._finished: list[RequestRecord] = []
        self._later = later
        # A single timer at a time: with a timer for each, the timer of a full batch would cut the next batch short.
        self._timed = False
        self.limits_changed()

    def limits_changed(self) -> None:
        """Read the limits in force: requests from now on have these in their events."""
        heap, direct, limits = self._limiter.heap, self._limiter.direct, self._questions.limits
        self._in_force = _NOTHING | {
            "heap_limit_bytes": max(0, heap.limit),
            "direct_limit_bytes": max(0, direct.limit),
            "heap_queue_max": max(0, heap.max_queue),
            "direct_queue_max": max(0, direct.max_queue),
            "heap_timeout_ms": round(heap.timeout_seconds * 1000),
            "direct_timeout_ms": round(direct.timeout_seconds * 1000),
            "request_timeout_ms": round(limits.request_timeout_seconds * 1000),
            "max_outstanding_per_broker": limits.max_outstanding_per_broker,
            "fairness": self._fairness_keys.fairness,
            "key_cap_percent": limits.key_cap_percent,
            "coalescing": limits.coalescing,
            "unproven_readers_percent": limits.unproven_readers_percent,
            "spill_limit_bytes": limits.spill_limit_bytes,
        }

    def shared_by_role(self) -> bool:
        """Return whether clients of one role share answers now."""
        return self._questions.limits.shared_by_role

    def moment(self) -> Moment:
        """Return the state of the limiters: a request arrives."""
        heap, direct = self._limiter.heap, self._limiter.direct
        waiting = self._questions.heap_queue_size
        return self.now(), waiting, direct.queue_size, heap.held, direct.held, self._in_force

    def request(self, client: RecordedClient) -> "RequestRecord":
        """Begin to record a request that has just arrived."""
        self.open += 1
        return RequestRecord(self, self.moment(), client)

    def new_timeline(self, broker: object, question: bytes) -> RequestTimeline:
        """Begin to record a new group."""
        self._groups += 1
        return RequestTimeline(self.now, self._groups, broker, question)

    def finish(self, record: "RequestRecord") -> None:
        """Schedule the event of a request that is over, together with others."""
        finished = self._finished
        finished.append(record)
        if len(finished) >= TOGETHER or self._later is None:
            self.make_events()
        elif not self._timed:
            self._timed = True
            self._later(LONGEST_WAIT_SECONDS, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timed = False
        self.make_events()

    def make_events(self) -> None:
        """Make the events of all records whose requests are over."""
        finished, self._finished = self._finished, []
        for record in finished:
            try:
                self.put(record.event())
            except Exception as error:
                self.crashed(error)

    async def flush(self) -> None:
        """Wait until all requests have their events; their clients are gone."""
        for _ in range(MOST_ITERATIONS):
            if not self.open:
                break
            await asyncio.sleep(0)
        self.make_events()

    def broker_name(self, broker: object) -> str:
        """Return a broker's name as text; the last name is kept, for there are few brokers."""
        if broker is not self._broker:
            self._broker, self._broker_name = broker, str(broker)
        return self._broker_name

    def begun(
        self, moment: Moment, kind: str, origin: RequestOrigin | RecordedClient, namespace: str
    ) -> dict[str, object]:
        """Return an event with what was known at the beginning; `namespace` is empty if it is not known."""
        at_ns, heap_waiting, direct_waiting, heap_used_bytes, direct_used_bytes, in_force = moment
        event = in_force.copy()
        event["ts_us"] = (self._wall() - (self.now() - at_ns)) // 1000
        event["kind"] = kind
        if namespace:
            event["tenant"] = bounded(namespace.partition("/")[0])
            event["namespace"] = bounded(namespace)
        identities = self.identities
        event["principal"] = identities.principal(origin.principal)
        event["client_version"] = origin.client_version
        event["client_id"] = identities.client(origin.name)
        event["heap_queue_len"] = heap_waiting
        event["direct_queue_len"] = direct_waiting
        event["heap_used_bytes"] = heap_used_bytes
        event["direct_used_bytes"] = direct_used_bytes
        return event


class NoRecord:
    """The record of a request without an event log: nothing is noted."""

    __slots__ = ()

    def asks(self, request: pb.CommandGetTopicsOfNamespace | None) -> None:
        """Record the question; None while the request waits for its turn, for which it is kept as it came."""

    def new_timeline(self, broker: object, question: bytes, request: pb.CommandGetTopicsOfNamespace) -> NoTimeline:
        """Return the timeline of a group that this request begins; `question` is empty if the group has no key."""
        return NO_TIMELINE

    def joined(self, timeline: NoTimeline) -> None:
        """Record the timeline of the request's group."""

    def sent(self, request_id: int, list_bytes: int) -> None:
        """Record that the kernel has all of the list."""

    def answered(self) -> None:
        """Record that the client has its list."""

    def failed(self, error: Exception) -> None:
        """Record that an error was sent to the client."""

    def rejected(self) -> None:
        """Record that too many requests were under way."""

    def cancelled(self) -> None:
        """Record that the client left before it had its list."""


NO_RECORD: Final = NoRecord()


def request_record(recorder: Recorder | None, client: RecordedClient) -> NoRecord:
    """Return the record of a request that has just arrived; without an event log the record that notes nothing."""
    return NO_RECORD if recorder is None else recorder.request(client)


class RequestRecord(NoRecord):
    """The notes about one request of the binary port; `is_over` once the request's end is noted.

    The first of `answered`, `failed`, `rejected` and `cancelled` notes the end, and any other does nothing. The event
    of an answered request is made after that, when nothing about the request changes any more.
    """

    __slots__ = (
        "_carries_cost",
        "_client",
        "_joined_ns",
        "_made",
        "_moment",
        "_recorder",
        "_request",
        "_response_bytes",
        "_timeline",
        "_until_ns",
        "coalesced",
        "is_over",
    )

    def __init__(self, recorder: Recorder, moment: Moment, client: RecordedClient) -> None:
        self._recorder = recorder
        self._moment = moment
        self._client = client
        self._request: pb.CommandGetTopicsOfNamespace | None = None
        self._timeline: RequestTimeline | None = None
        self._joined_ns = 0
        self._response_bytes: int | None = None
        self._made: dict[str, object] | None = None
        self._carries_cost = False
        self._until_ns = 0
        self.coalesced = False
        self.is_over = False

    def asks(self, request: pb.CommandGetTopicsOfNamespace | None) -> None:
        """Record the question; None while the request waits for its turn, for which it is kept as it came."""
        self._request = request

    def new_timeline(self, broker: object, question: bytes, request: pb.CommandGetTopicsOfNamespace) -> RequestTimeline:
        """Return the timeline of a group that this request begins; `question` is empty if the group has no key."""
        return self._recorder.new_timeline(broker, question or topic_list_question(request))

    def joined(self, timeline: NoTimeline) -> None:
        """Record the timeline of the request's group: from now on the request stands where its group does."""
        assert isinstance(timeline, RequestTimeline)
        self._timeline = timeline
        self.coalesced = timeline.joined()
        self._joined_ns = self._recorder.now()

    def sent(self, request_id: int, list_bytes: int) -> None:
        """Record that the kernel has all of the list."""
        known = None if self._timeline is None else self._timeline.frame_bytes(request_id)
        self._response_bytes = (
            list_bytes + len(answer_prefix(_LIST, request_id, list_bytes)) if known is None else known
        )

    def answered(self) -> None:
        """Record that the client has its list."""
        self._end("ok")

    def failed(self, error: Exception) -> None:
        """Record that an error was sent to the client."""
        at_the_frame = isinstance(error, OverLimit) and error.stage == "client_frame"
        self._end(outcome_of(error, under_way=self._timeline is not None), "reader" if at_the_frame else None)

    def rejected(self) -> None:
        """Record that too many requests were under way."""
        self._end("queue_full")

    def cancelled(self) -> None:
        """Record that the client left before it had its list."""
        self._end("cancelled")

    def _end(self, outcome: str, stage: str | None = None) -> None:
        if self.is_over:
            return
        self.is_over = True
        recorder, timeline = self._recorder, self._timeline
        recorder.open -= 1
        self._until_ns = recorder.now()
        if outcome != "ok":
            try:
                self._made = self._event(outcome, stage)
            except Exception as error:
                recorder.crashed(error)
                return
        if timeline is None:
            recorder.finish(self)
        else:
            timeline.left(self)

    def over(self, *, carries_cost: bool) -> None:
        """Called when nothing about this request changes any more; `carries_cost` if its event has the group's cost."""
        self._carries_cost = carries_cost
        self._recorder.finish(self)

    def event(self) -> dict[str, object]:
        """Return the event, with the cost of the group if the request carries it."""
        event = self._event("ok", None) if self._made is None else self._made
        event["response_bytes"] = self._response_bytes
        if self._timeline is not None and self._carries_cost:
            self._timeline.add_cost(event)
        return event

    def _event(self, outcome: str, stage: str | None) -> dict[str, object]:
        moment, timeline, client, request = self._moment, self._timeline, self._client, self._request
        until_ns = self._until_ns
        event = self._recorder.begun(moment, "get_topics", client, "" if request is None else request.namespace)
        total = until_ns // 1000 - moment[0] // 1000
        event["total_us"] = total
        event["outcome"] = outcome
        if request is not None:
            self._add_question(event, request)
        if timeline is None:
            event["client_wait_us"] = total
            last = TimelineStage.CLIENT
        else:
            last = self._add_group(event, timeline, until_ns)
        if outcome != "ok":
            event["outcome_stage"] = STAGES[last] if stage is None else stage
        if outcome == "cancelled":
            event["cancelled_after_us"] = total
            event["close_cause"] = close_cause_of(client.cause)
        return event

    def _add_question(self, event: dict[str, object], request: pb.CommandGetTopicsOfNamespace) -> None:
        identities, timeline = self._recorder.identities, self._timeline
        event["mode"] = _MODE_NAMES.get(request.mode)
        if request.topics_pattern:
            event["pattern_hash"] = identities.pattern(request.topics_pattern)
        if timeline is None:
            event["question_hash"] = identities.question(self._sharing(), topic_list_question(request))
            return
        if not timeline.question_hash:
            timeline.question_hash = identities.question(self._sharing(), timeline.question)
        event["question_hash"] = timeline.question_hash

    def _sharing(self) -> Hashable:
        principal = self._client.principal
        return role_of(principal) if self._recorder.shared_by_role() else principal

    def _add_group(self, event: dict[str, object], timeline: RequestTimeline, until_ns: int) -> int:
        event["broker"] = self._recorder.broker_name(timeline.broker)
        event["group_id"] = timeline.number
        event["group_size"] = timeline.size
        event["coalesced"] = self.coalesced
        event["topic_count"] = timeline.topic_count
        event["name_bytes"] = timeline.name_bytes
        event["heap_estimate_bytes"] = timeline.heap_estimate_bytes
        event["heap_actual_bytes"] = timeline.heap_actual_bytes
        event["direct_bytes"] = timeline.direct_bytes
        event["filtered"] = timeline.filtered
        event["hash_unchanged"] = timeline.unchanged
        took, last = stages_between(timeline, self._joined_ns, until_ns)
        took[TimelineStage.CLIENT] = self._joined_ns // 1000 - self._moment[0] // 1000
        event.update(zip(STAGE_FIELDS, took, strict=True))
        return last
