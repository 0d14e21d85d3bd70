"""Record topic lists: one event for each request at its end, whatever that is, and nothing that holds a request up.

Rules: what is not known is null, never guessed. A request that was answered changes no more, so that its event is made
a little later, with those of others; of any other it is made at once, while what it waited for can still be told. An
error in here is reported and costs an event, never an answer. Without an event log there is no recorder at all: who
serves requests asks for None, and that is the whole cost.

Every request of the binary port that is decoded has one event: those that are refused at once end at the stage
`client`, with no time in any part. Refused before that, without an event and in no count of requests, are frames larger
than 4 KiB and what is no request, as text that is not UTF-8. Requests over HTTP, whose `question_hash` is null, and
frames for watchers belong to no group, and each carries its own cost.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from eventlog.schema import FIELDS
from eventlog.sink import STAMPED, EventSink
from limiter.dual import AsyncDualMemoryLimiter
from protocol.command_type import CommandType
from protocol.frames import answer_prefix
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.fairness_key import FairnessKeys
from proxy.requests.client import ClientView
from proxy.requests.topic_lists.groups import ListGroup, question_of
from proxy.requests.topic_lists.questions import ListQuestions
from proxy.telemetry.events.identities import EventIdentities, bounded
from proxy.telemetry.events.outcomes import close_cause_of, outcome_of
from proxy.telemetry.events.timeline import PARTS, STAGE_OF_PART, Part, RequestTimeline, parts_between

__all__ = ["Moment", "Recorder", "RequestOrigin", "RequestRecord"]

_MODES: Final = pb.CommandGetTopicsOfNamespace.Mode
_MODE_NAMES: Final[dict[int, str]] = {
    _MODES.PERSISTENT: "PERSISTENT",
    _MODES.NON_PERSISTENT: "NON_PERSISTENT",
    _MODES.ALL: "ALL",
}
_LIST: Final = CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE
# Those that waited for their turn are told of for 3 ms in each turn of the loop.
MOST_TURNS: Final = 10_000
# Events made in a row take a third of the time of events made one by one between lists, which leave nothing of the
# recorder in the processor's caches. 64 of them hold the loop up for about a millisecond.
TOGETHER: Final = 64
LONGEST_WAIT_SECONDS: Final = 0.1
# What a field is when nothing is known: in the order of the schema.
_NOTHING: Final[dict[str, object]] = {
    field.name: None if field.nullable else {"bool": False, "string": ""}.get(field.type, 0)
    for field in FIELDS
    if field.name not in STAMPED
}


# What things were like when a request arrived: when that was (monotonic, in nanoseconds), how many waited for heap and
# for direct memory, how much was held of each, and the event that has all limits in force and nothing else. A plain
# tuple: it is made while the request's first steps wait, and one with names takes seven times as long.
Moment = tuple[int, int, int, int, int, dict[str, object]]


class RequestOrigin(NamedTuple):
    """Who asks: its principal, its connection's name, and what it said it is."""

    principal: Any
    name: str
    client_version: str | None


class Recorder:
    """Make events of what is served, and give them to `sink`. `now` is monotonic, `wall` since 1970; nanoseconds.

    `later` calls a function after so many seconds; without it each event is made at once. `open` counts the requests of
    the binary port that are under way.
    """

    def __init__(
        self,
        sink: EventSink,
        identities: EventIdentities,
        limiter: AsyncDualMemoryLimiter,
        questions: ListQuestions,
        fairness_keys: FairnessKeys,
        crashed: Callable[[BaseException], None],
        now: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self.now = now
        self.identities = identities
        self.crashed = crashed
        # Takes whole events.
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
        # TOGETHER at most.
        self._told: list[RequestRecord] = []
        self._later = later
        # One timer at a time: with one for each batch, that of a full one would cut the next short.
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
        }

    def moment(self) -> Moment:
        """Look at the limiters: a request arrives."""
        heap, direct = self._limiter.heap, self._limiter.direct
        waiting = self._questions.heap_queue_size
        return self.now(), waiting, direct.queue_size, heap.held, direct.held, self._in_force

    def request(self, client: ClientView) -> "RequestRecord":
        """Begin to record a request that has just arrived."""
        self.open += 1
        return RequestRecord(self, self.moment(), client)

    def group(self, group: ListGroup) -> RequestTimeline:
        """Begin to record a new group."""
        self._groups += 1
        question = group.key.question or question_of(group.request)
        return RequestTimeline(self.now, self._groups, group.broker, question)

    def told(self, record: "RequestRecord") -> None:
        """Take a record whose request is over; its event is made with those of others."""
        told = self._told
        told.append(record)
        if len(told) >= TOGETHER or self._later is None:
            self.make_events()
        elif not self._timed:
            self._timed = True
            self._later(LONGEST_WAIT_SECONDS, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timed = False
        self.make_events()

    def make_events(self) -> None:
        """Make the events of all records that were told."""
        told, self._told = self._told, []
        for record in told:
            try:
                self.put(record.event())
            except Exception as error:
                self.crashed(error)

    async def all_told(self) -> None:
        """Let all requests whose clients are gone have their events."""
        for _ in range(MOST_TURNS):
            if not self.open:
                break
            await asyncio.sleep(0)
        self.make_events()

    def broker_name(self, broker: object) -> str:
        """Give a broker's name as text; that of the last one is remembered, for there are few."""
        if broker is not self._broker:
            self._broker, self._broker_name = broker, str(broker)
        return self._broker_name

    def begun(self, moment: Moment, kind: str, who: RequestOrigin | ClientView, namespace: str) -> dict[str, object]:
        """Make an event of what was known at the beginning; `namespace` is empty if it is not known."""
        at_ns, heap_waiting, direct_waiting, heap_used_bytes, direct_used_bytes, in_force = moment
        event = in_force.copy()
        event["ts_us"] = (self._wall() - (self.now() - at_ns)) // 1000
        event["kind"] = kind
        if namespace:
            event["tenant"] = bounded(namespace.partition("/")[0])
            event["namespace"] = bounded(namespace)
        identities = self.identities
        event["principal"] = identities.principal(who.principal)
        event["client_version"] = who.client_version
        event["client_id"] = identities.client(who.name)
        event["heap_queue_len"] = heap_waiting
        event["direct_queue_len"] = direct_waiting
        event["heap_used_bytes"] = heap_used_bytes
        event["direct_used_bytes"] = direct_used_bytes
        return event


class RequestRecord:
    """What is noted of one request of the binary port; `told` is whether its end is.

    The first of `answered`, `failed`, `rejected` and `cancelled` notes it, and any other does nothing. With a list the
    event is made behind that, when nothing about the request changes any more.
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
        "_story",
        "_until_ns",
        "coalesced",
        "told",
    )

    def __init__(self, recorder: Recorder, moment: Moment, client: ClientView) -> None:
        self._recorder = recorder
        self._moment = moment
        self._client = client
        self._request: pb.CommandGetTopicsOfNamespace | None = None
        self._story: RequestTimeline | None = None
        self._joined_ns = 0
        self._response_bytes: int | None = None
        self._made: dict[str, object] | None = None
        self._carries_cost = False
        self._until_ns = 0
        self.coalesced = False
        self.told = False

    def asks(self, request: pb.CommandGetTopicsOfNamespace | None) -> None:
        """Note what is asked for; None while the request waits for its turn, for which it is kept as it came."""
        self._request = request

    def joined(self, group: ListGroup) -> None:
        """Note the group; from now on the request stands where that does."""
        if group.story is None:
            group.story = self._recorder.group(group)
        self._story = group.story
        self.coalesced = group.story.joined()
        self._joined_ns = self._recorder.now()

    def sent(self, request_id: int, list_bytes: int) -> None:
        """Note that the kernel has all of the list."""
        known = None if self._story is None else self._story.frame_bytes(request_id)
        self._response_bytes = (
            list_bytes + len(answer_prefix(_LIST, request_id, list_bytes)) if known is None else known
        )

    def answered(self) -> None:
        """Record that the client has its list."""
        self._tell("ok")

    def failed(self, error: Exception) -> None:
        """Record that the client was told of an error."""
        at_the_frame = getattr(error, "stage", None) == "client_frame"
        self._tell(outcome_of(error, under_way=self._story is not None), "reader" if at_the_frame else None)

    def rejected(self) -> None:
        """Record that too many requests were under way."""
        self._tell("queue_full")

    def cancelled(self) -> None:
        """Record that the client left before it had its list."""
        self._tell("cancelled")

    def _tell(self, outcome: str, stage: str | None = None) -> None:
        if self.told:
            return
        self.told = True
        recorder, story = self._recorder, self._story
        recorder.open -= 1
        self._until_ns = recorder.now()
        if outcome != "ok":
            try:
                self._made = self._event(outcome, stage)
            except Exception as error:
                recorder.crashed(error)
                return
        if story is None:
            recorder.told(self)
        else:
            story.left(self)

    def over(self, *, carries_cost: bool) -> None:
        """Hear that nothing about this request changes any more."""
        self._carries_cost = carries_cost
        self._recorder.told(self)

    def event(self) -> dict[str, object]:
        """Make the event."""
        event = self._event("ok", None) if self._made is None else self._made
        event["response_bytes"] = self._response_bytes
        if self._story is not None and self._carries_cost:
            self._story.add_cost(event)
        return event

    def _event(self, outcome: str, stage: str | None) -> dict[str, object]:
        moment, story, client, request = self._moment, self._story, self._client, self._request
        until_ns = self._until_ns
        event = self._recorder.begun(moment, "get_topics", client, "" if request is None else request.namespace)
        total = until_ns // 1000 - moment[0] // 1000
        event["total_us"] = total
        event["outcome"] = outcome
        if request is not None:
            self._add_question(event, request)
        if story is None:
            event["client_wait_us"] = total
            part = Part.CLIENT
        else:
            part = self._add_group(event, story, until_ns)
        if outcome != "ok":
            event["outcome_stage"] = STAGE_OF_PART[part] if stage is None else stage
        if outcome == "cancelled":
            event["cancelled_after_us"] = total
            event["close_cause"] = close_cause_of(client.cause)
        return event

    def _add_question(self, event: dict[str, object], request: pb.CommandGetTopicsOfNamespace) -> None:
        identities, story = self._recorder.identities, self._story
        event["mode"] = _MODE_NAMES.get(request.mode)
        if request.topics_pattern:
            event["pattern_hash"] = identities.pattern(request.topics_pattern)
        if story is None:
            event["question_hash"] = identities.question(self._client.principal, question_of(request))
            return
        if not story.question_hash:
            story.question_hash = identities.question(self._client.principal, story.question)
        event["question_hash"] = story.question_hash

    def _add_group(self, event: dict[str, object], story: RequestTimeline, until_ns: int) -> int:
        event["broker"] = self._recorder.broker_name(story.broker)
        event["group_id"] = story.number
        event["group_size"] = story.size
        event["coalesced"] = self.coalesced
        event["topic_count"] = story.topic_count
        event["name_bytes"] = story.name_bytes
        event["heap_estimate_bytes"] = story.heap_estimate_bytes
        event["heap_actual_bytes"] = story.heap_actual_bytes
        event["direct_bytes"] = story.direct_bytes
        event["filtered"] = story.filtered
        event["hash_unchanged"] = story.unchanged
        took, last = parts_between(story, self._joined_ns, until_ns)
        took[Part.CLIENT] = self._joined_ns // 1000 - self._moment[0] // 1000
        event.update(zip(PARTS, took, strict=True))
        return last
