"""Record topic lists: one event for each request at its end, however the request ends; recording delays no request.

Rules: what is not known is null, never guessed. The event of an answered request is made a little later, together with
others, since nothing about the request changes any more; the event of any other request is made at once, while its
waits are still known. An error in here is reported and costs an event, never an answer. Without an event log there is
no recorder, and requests have no record.

Every request of the binary port that is decoded has one event: requests that are refused at once end at the stage
`client`, with no time in any stage. Frames larger than 4 KiB, and frames that are no request (as text that is not
UTF-8), are refused before that, without an event and without being counted as requests. Requests over HTTP, whose
`question_hash` is null, and frames for watchers belong to no group, and each carries its own cost.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from eventlog.schema import FIELDS, LATER_LIMITS, STAGES
from eventlog.sink import STAMPED, EventSink
from limiter.dual import AsyncDualMemoryLimiter
from protocol.commands import topic_list_question
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.fairness_key import role_of
from proxy.config.config import Config
from proxy.core.errors import DisconnectCause, OverLimit
from proxy.telemetry.events.identities import EventIdentities, bounded
from proxy.telemetry.events.outcomes import close_cause_of, outcome_of
from proxy.telemetry.events.timeline import STAGE_FIELDS, GroupTimeline, Timeline

__all__ = ["End", "Moment", "Record", "Recorder", "RecorderSettings", "RequestOrigin", "RequestRecord"]

_MIB: Final = 1024 * 1024
_MODES: Final = pb.CommandGetTopicsOfNamespace.Mode
_MODE_NAMES: Final[dict[int, str]] = {
    _MODES.PERSISTENT: "PERSISTENT",
    _MODES.NON_PERSISTENT: "NON_PERSISTENT",
    _MODES.ALL: "ALL",
}
# Requests that waited for their turn are recorded for 3 ms in each iteration of the loop.
MOST_ITERATIONS: Final = 10_000
# Events made in a row take a third of the time of events made one by one between lists, which leave nothing of the
# recorder in the processor's caches. 64 of them hold the loop up for about a millisecond.
TOGETHER: Final = 64
LONGEST_WAIT_SECONDS: Final = 0.1
_NO_REQUEST: Final = pb.CommandGetTopicsOfNamespace()
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


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """The limits in force, by their fields of an event; `shared_by_role`: clients of one role share answers."""

    in_force: Mapping[str, object]
    shared_by_role: bool

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the settings of a configuration."""
        spills = config.topic_list_spill_directory
        in_force = {
            "heap_limit_bytes": config.heap_limit_bytes,
            "direct_limit_bytes": config.direct_limit_bytes,
            "heap_queue_max": config.max_topic_list_in_flight_heap_mem_size_permits_acquire_queue_size,
            "direct_queue_max": config.max_topic_list_in_flight_direct_mem_size_permits_acquire_queue_size,
            "heap_timeout_ms": config.max_topic_list_in_flight_heap_mem_size_permits_acquire_timeout_millis,
            "direct_timeout_ms": config.max_topic_list_in_flight_direct_mem_size_permits_acquire_timeout_millis,
            "request_timeout_ms": config.topic_list_request_timeout_millis,
            "max_outstanding_per_broker": config.topic_list_max_outstanding_per_broker,
            "fairness": config.topic_list_fairness,
            "key_cap_percent": config.topic_list_max_memory_percent_per_key,
            "coalescing": config.topic_list_coalescing_enabled,
            "unproven_readers_percent": config.topic_list_unproven_readers_memory_percent,
            "spill_limit_bytes": config.topic_list_spill_max_mb * _MIB if spills else 0,
        }
        return cls(in_force, shared_by_role=config.topic_list_shared_by == "role")


class Recorder:
    """Makes events of requests, and hands them to `sink`. `now` is monotonic, `wall` since 1970; nanoseconds.

    `heap_waiting` counts the waiters for heap memory. `later` calls a function after so many seconds; without it each
    event is made at once. `open` counts the requests of the binary port that are under way.
    """

    def __init__(
        self,
        sink: EventSink,
        identities: EventIdentities,
        limiter: AsyncDualMemoryLimiter,
        heap_waiting: Callable[[], int],
        settings: RecorderSettings,
        crashed: Callable[[BaseException], None],
        now: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self.now = now
        self.identities = identities
        self.crashed = crashed
        # Called with whole events.
        self.put = sink
        self._limiter = limiter
        self._heap_waiting = heap_waiting
        self._wall = wall
        self._groups = 0
        self.open = 0
        self._broker: object = None
        self._broker_name = ""
        # At most TOGETHER records whose requests are over.
        self._finished: list[RequestRecord] = []
        self._later = later
        # A single timer at a time: with a timer for each, the timer of a full batch would cut the next batch short.
        self._timed = False
        self.apply(settings)

    def apply(self, settings: RecorderSettings) -> None:
        """Apply changed limits: requests from now on have these in their events."""
        self._in_force = {**_NOTHING, **settings.in_force}
        self.shared_by_role = settings.shared_by_role

    def moment(self) -> Moment:
        """Return the state of the limiters: a request arrives."""
        heap, direct = self._limiter.heap, self._limiter.direct
        waiting = self._heap_waiting()
        return self.now(), waiting, direct.queue_size, heap.held, direct.held, self._in_force

    def request(self, origin: RequestOrigin) -> "RequestRecord":
        """Begin to record a request that has just arrived."""
        self.open += 1
        return RequestRecord(self, origin)

    def new_timeline(self, broker: object, question: bytes) -> GroupTimeline:
        """Begin to record a new group."""
        self._groups += 1
        return GroupTimeline(self.now, self._groups, broker, question)

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

    def begun(self, moment: Moment, kind: str, origin: RequestOrigin, namespace: str) -> dict[str, object]:
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


class End(NamedTuple):
    """How a request ended, and when; `stage`: where, None: where it stands; `gone`: why its client left, if it did."""

    outcome: str
    at_ns: int
    stage: str | None = None
    gone: DisconnectCause | None = None


class Record:
    """A request from its arrival on, until it ends in an event."""

    __slots__ = ("_moment", "_origin", "_recorder")

    def __init__(self, recorder: Recorder, origin: RequestOrigin) -> None:
        self._recorder = recorder
        self._moment = recorder.moment()
        self._origin = origin

    def _event(
        self,
        kind: str,
        namespace: str,
        path: tuple[Timeline, int] | None,
        end: End,
    ) -> dict[str, object]:
        """Return the event; `path`: the request's timeline, and since when it stands there, None: it never did."""
        at_us = self._moment[0] // 1000
        event = self._recorder.begun(self._moment, kind, self._origin, namespace)
        event["total_us"] = end.at_ns // 1000 - at_us
        event["outcome"] = end.outcome
        last = 0
        if path is None:
            event[STAGE_FIELDS[0]] = event["total_us"]
        else:
            timeline, since_ns = path
            took, last = timeline.took(since_ns, end.at_ns)
            took[0] = since_ns // 1000 - at_us
            event.update(zip(STAGE_FIELDS, took, strict=True))
            event["direct_bytes"] = timeline.direct_bytes
        if end.outcome != "ok":
            event["outcome_stage"] = end.stage or STAGES[last]
        if end.outcome == "cancelled":
            event["cancelled_after_us"] = event["total_us"]
            event["close_cause"] = close_cause_of(end.gone)
        return event


class RequestRecord(Record):
    """The notes about one request of the binary port.

    The first of `answered`, `failed`, `rejected` and `cancelled` notes the end, and any other does nothing. The event
    of an answered request is made after that, when nothing about the request changes any more.
    """

    __slots__ = (
        "_carries_cost",
        "_coalesced",
        "_end",
        "_joined_ns",
        "_made",
        "_request",
        "_response_bytes",
        "_timeline",
    )

    def __init__(self, recorder: Recorder, origin: RequestOrigin) -> None:
        super().__init__(recorder, origin)
        self._timeline: GroupTimeline | None = None
        self._joined_ns = 0
        # The question and the end, once the request is over.
        self._request = _NO_REQUEST
        self._end: End | None = None
        self._response_bytes: int | None = None
        self._made: dict[str, object] | None = None
        self._carries_cost = False
        self._coalesced = False

    def joined(self, timeline: GroupTimeline | None, broker: object, question: bytes) -> GroupTimeline:
        """Stand where the request's group does from now on; return its timeline, which begins if there is none."""
        self._timeline = timeline or self._recorder.new_timeline(broker, question)
        self._coalesced = self._timeline.joined()
        self._joined_ns = self._recorder.now()
        return self._timeline

    def answered(self, request: pb.CommandGetTopicsOfNamespace, response_bytes: int) -> None:
        """Record that the kernel has all of the list, in a frame of so many bytes."""
        self._response_bytes = response_bytes
        self._over(request, "ok")

    def failed(self, request: pb.CommandGetTopicsOfNamespace, error: Exception) -> None:
        """Record that an error was sent to the client."""
        at_the_frame = isinstance(error, OverLimit) and error.stage == "client_frame"
        outcome = outcome_of(error, under_way=self._timeline is not None)
        self._over(request, outcome, "reader" if at_the_frame else None)

    def rejected(self, request: pb.CommandGetTopicsOfNamespace) -> None:
        """Record that too many requests were under way."""
        self._over(request, "queue_full")

    def cancelled(self, request: pb.CommandGetTopicsOfNamespace, gone: DisconnectCause | None) -> None:
        """Record that the client left, for that cause, before it had its list."""
        self._over(request, "cancelled", gone=gone)

    def _over(
        self,
        request: pb.CommandGetTopicsOfNamespace,
        outcome: str,
        stage: str | None = None,
        gone: DisconnectCause | None = None,
    ) -> None:
        if self._end is not None:
            return
        recorder, timeline = self._recorder, self._timeline
        recorder.open -= 1
        self._request, self._end = request, End(outcome, recorder.now(), stage, gone)
        if outcome != "ok":
            try:
                self._made = self._event_of(self._end)
            except Exception as error:
                recorder.crashed(error)
                return
        if timeline is None:
            recorder.finish(self)
        else:
            timeline.left(self._finish)

    def _finish(self, carries_cost: bool) -> None:
        """Make the event, later: nothing about this request changes any more."""
        self._carries_cost = carries_cost
        self._recorder.finish(self)

    def event(self) -> dict[str, object]:
        """Return the event of a request that is over, with the cost of the group if the request carries it."""
        assert self._end is not None
        event = self._event_of(self._end) if self._made is None else self._made
        event["response_bytes"] = self._response_bytes
        if self._timeline is not None and self._carries_cost:
            self._timeline.add_cost(event)
        return event

    def _event_of(self, end: End) -> dict[str, object]:
        request, timeline = self._request, self._timeline
        path = None if timeline is None else (timeline, self._joined_ns)
        event = self._event("get_topics", request.namespace, path, end)
        event["mode"] = _MODE_NAMES.get(request.mode)
        if request.topics_pattern:
            event["pattern_hash"] = self._recorder.identities.pattern(request.topics_pattern)
        if timeline is None:
            event["question_hash"] = self._hash_of(topic_list_question(request))
        else:
            self._add_group(event, timeline)
        return event

    def _hash_of(self, question: bytes) -> str:
        principal = self._origin.principal
        sharing = role_of(principal) if self._recorder.shared_by_role else principal
        return self._recorder.identities.question(sharing, question)

    def _add_group(self, event: dict[str, object], timeline: GroupTimeline) -> None:
        if not timeline.question_hash:
            timeline.question_hash = self._hash_of(timeline.question)
        event["question_hash"] = timeline.question_hash
        event["broker"] = self._recorder.broker_name(timeline.broker)
        event["group_id"] = timeline.number
        event["group_size"] = timeline.size
        event["coalesced"] = self._coalesced
        event["topic_count"] = timeline.topic_count
        event["name_bytes"] = timeline.name_bytes
        event["heap_estimate_bytes"] = timeline.heap_estimate_bytes
        event["heap_actual_bytes"] = timeline.heap_actual_bytes
        event["filtered"] = timeline.filtered
        event["hash_unchanged"] = timeline.unchanged
