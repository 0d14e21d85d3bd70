"""The timeline of a topic list: where a group of requests stands since when, and what memory the group holds.

Rule: each stage begins where the stage before ended, so that the stages of any member add up to the member's life. Each
group of requests has one timeline; a member adds when its request came, when the member joined and when it left.
Numbers only: no clock of its own, no I/O, and nothing that could keep a list in memory. Without an event log every
group has `NO_TIMELINE`, which does nothing.
"""

from collections.abc import Callable
from typing import ClassVar, Final, Protocol

__all__ = [
    "NO_TIMELINE",
    "STAGE_FIELDS",
    "DepartedMember",
    "Meter",
    "NoTimeline",
    "RequestTimeline",
    "TimelineStage",
    "stages_between",
]


class TimelineStage:
    """The stage of its path that a request has reached; the numbers count through `STAGE_FIELDS`."""

    CLIENT: Final = 0
    GROUP: Final = 1
    HEAP: Final = 2
    BROKER: Final = 3
    UPSTREAM: Final = 4
    HEAP_UPDATE: Final = 5
    READ: Final = 6
    READER: Final = 7
    DIRECT: Final = 8
    WRITE: Final = 9


# The field of an event with the time that each stage took; STAGES of eventlog.schema are in the same order.
STAGE_FIELDS: Final = (
    "client_wait_us",
    "group_wait_us",
    "heap_wait_us",
    "broker_wait_us",
    "upstream_us",
    "heap_update_wait_us",
    "read_us",
    "reader_wait_us",
    "direct_wait_us",
    "write_us",
)
# These stages are null if never reached; the other stages are 0 then.
_MAY_BE_NULL: Final = frozenset(
    {TimelineStage.BROKER, TimelineStage.UPSTREAM, TimelineStage.READ, TimelineStage.READER, TimelineStage.WRITE}
)
_NEVER: Final[tuple[int | None, ...]] = tuple(
    None if stage in _MAY_BE_NULL else 0 for stage in range(len(STAGE_FIELDS))
)


class Meter:
    """Integrate a permit's size over the time it is held; times in nanoseconds.

    `began_ns` is when the permit was taken, 0 while none is held.
    """

    __slots__ = ("_at_ns", "_byte_ns", "_held_ns", "_size", "began_ns")

    def __init__(self) -> None:
        self._at_ns = self._size = self.began_ns = self._byte_ns = self._held_ns = 0

    def begin(self, now_ns: int, size: int) -> None:
        """Record that a permit of `size` bytes is held."""
        self.began_ns = self._at_ns = now_ns
        self._size = size

    def resized(self, now_ns: int, size: int) -> None:
        """Record that the permit is `size` bytes from now on."""
        self._byte_ns += self._size * (now_ns - self._at_ns)
        self._at_ns = now_ns
        self._size = size

    def end(self, now_ns: int) -> None:
        """Record that the permit was released; a second call does nothing."""
        if self.began_ns:
            self._byte_ns += self._size * (now_ns - self._at_ns)
            self._held_ns += now_ns - self.began_ns
            self._size = self.began_ns = 0

    @property
    def held_us(self) -> int:
        """Return how long permits were held."""
        return self._held_ns // 1000

    @property
    def byte_us(self) -> int:
        """Return the sum of bytes times the time for which they were held."""
        return self._byte_ns // 1000


class DepartedMember(Protocol):
    """A member that has left its group."""

    def over(self, *, carries_cost: bool) -> None:
        """Called when nothing about this member changes any more; `carries_cost` if its event has the group's cost."""


class NoTimeline:
    """The timeline of a group without an event log: nothing is noted."""

    __slots__ = ()

    # Whether `decoded` wants the names of the answer counted, which costs more than anything else that is done to it.
    counts_names: ClassVar[bool] = False

    def enter(self, stage: int) -> None:
        """Record that the group has reached another stage."""

    def estimated(self, heap_bytes: int) -> None:
        """Record for how much heap memory the group asks at first."""

    def heap_held(self, held_bytes: int) -> None:
        """Record that heap memory is held for the estimate."""

    def heap_resized(self, held_bytes: int) -> None:
        """Record another size of the heap memory."""

    def heap_over(self) -> None:
        """Record that the heap memory was released; a second call does nothing."""

    def asked(self, broker: object) -> None:
        """Record which broker has the question."""

    def too_large(self, needed_bytes: int) -> None:
        """Record how much heap memory a refused answer would have taken."""

    def response_begun(self, needed_bytes: int, held_bytes: int, *, admitted: bool) -> None:
        """Record that the answer has begun: the answer is read if its memory was `admitted`, else waits for that."""

    def admitted(self, held_bytes: int) -> None:
        """Record that the answer's memory was granted."""

    def decoded(self, topic_count: int, name_bytes: int, *, filtered: bool, changed: bool) -> None:
        """Record what the whole answer was."""

    def asks_direct(self, frame_bytes: int, request_id: int) -> None:
        """Record that direct memory is asked for, for a frame of so many bytes with that request id in it."""

    def direct_held(self, held_bytes: int) -> None:
        """Record that direct memory is held, for the writing."""

    def direct_resized(self, held_bytes: int) -> None:
        """Record another size of the direct memory."""

    def direct_over(self) -> None:
        """Record that the direct memory was released; a second call does nothing."""

    def work_over(self) -> None:
        """Record that nothing is done for this group any more: the rest of its memory ends with its members."""


NO_TIMELINE: Final = NoTimeline()


class RequestTimeline(NoTimeline):
    """The timeline of one group; `now` returns monotonic nanoseconds, `broker` is the broker's name as text.

    The event of the last member to leave carries the group's cost, so that event waits until the group's work is over.
    """

    counts_names: ClassVar[bool] = True

    __slots__ = (
        "_now",
        "_pending",
        "_request_id",
        "_working",
        "broker",
        "direct",
        "direct_bytes",
        "entered_ns",
        "filtered",
        "heap",
        "heap_actual_bytes",
        "heap_estimate_bytes",
        "name_bytes",
        "number",
        "open",
        "question",
        "question_hash",
        "size",
        "stages",
        "topic_count",
        "unchanged",
    )

    def __init__(
        self,
        now: Callable[[], int],
        number: int,
        broker: object,
        question: bytes,
    ) -> None:
        self._now = now
        self._pending: DepartedMember | None = None
        self._working = True
        self.number = number
        self.broker = broker
        self.question = question
        self.question_hash = ""
        self.size = self.open = 0
        self.stages = [TimelineStage.GROUP]
        self.entered_ns = [now()]
        self.heap, self.direct = Meter(), Meter()
        self.heap_estimate_bytes: int | None = None
        self.heap_actual_bytes: int | None = None
        self.direct_bytes: int | None = None
        self._request_id = -1
        self.topic_count: int | None = None
        self.name_bytes: int | None = None
        self.filtered = self.unchanged = False

    # --- the stages of the path -------------------------------------------------------------------

    def enter(self, stage: int) -> None:
        """Record that the group has reached another stage."""
        if stage != self.stages[-1]:
            self.stages.append(stage)
            self.entered_ns.append(self._now())

    def _enter(self, stage: int, now_ns: int) -> None:
        if stage != self.stages[-1]:
            self.stages.append(stage)
            self.entered_ns.append(now_ns)

    def asked(self, broker: object) -> None:
        """Record which broker has the question."""
        self.broker = broker

    def too_large(self, needed_bytes: int) -> None:
        """Record how much heap memory a refused answer would have taken."""
        self.heap_actual_bytes = needed_bytes

    def response_begun(self, needed_bytes: int, held_bytes: int, *, admitted: bool) -> None:
        """Record that the answer has begun: the answer is read if its memory was `admitted`, else waits for that."""
        now_ns = self._now()
        self.heap_actual_bytes = needed_bytes
        if admitted:
            self.heap.resized(now_ns, held_bytes)
        self._enter(TimelineStage.READ if admitted else TimelineStage.HEAP_UPDATE, now_ns)

    def admitted(self, held_bytes: int) -> None:
        """Record that the answer's memory was granted."""
        now_ns = self._now()
        self.heap.resized(now_ns, held_bytes)
        self._enter(TimelineStage.READ, now_ns)

    def decoded(self, topic_count: int, name_bytes: int, *, filtered: bool, changed: bool) -> None:
        """Record what the whole answer was."""
        self.topic_count = topic_count
        self.name_bytes = name_bytes
        self.filtered = filtered
        self.unchanged = not changed

    # --- memory held -------------------------------------------------------------------------------

    def estimated(self, heap_bytes: int) -> None:
        """Record for how much heap memory the group asks at first."""
        self.heap_estimate_bytes = heap_bytes

    def heap_held(self, held_bytes: int) -> None:
        """Record that heap memory is held for the estimate."""
        self.heap.begin(self._now(), held_bytes)

    def heap_resized(self, held_bytes: int) -> None:
        """Record another size of the heap memory."""
        self.heap.resized(self._now(), held_bytes)

    def heap_over(self) -> None:
        """Record that the heap memory was released; a second call does nothing."""
        if self.heap.began_ns:
            self.heap.end(self._now())

    def asks_direct(self, frame_bytes: int, request_id: int) -> None:
        """Record that direct memory is asked for, for a frame of so many bytes with that request id in it."""
        self.direct_bytes = frame_bytes
        self._request_id = request_id

    def frame_bytes(self, request_id: int) -> int | None:
        """Return the size of the frame for another request; None if its id is not of the same length."""
        same = (request_id.bit_length() - 1) // 7 == (self._request_id.bit_length() - 1) // 7
        return self.direct_bytes if same else None

    def direct_held(self, held_bytes: int) -> None:
        """Record that direct memory is held, for the writing."""
        now_ns = self._now()
        self.direct.begin(now_ns, held_bytes)
        self._enter(TimelineStage.WRITE, now_ns)

    def direct_resized(self, held_bytes: int) -> None:
        """Record another size of the direct memory."""
        self.direct.resized(self._now(), held_bytes)

    def direct_over(self) -> None:
        """Record that the direct memory was released; a second call does nothing."""
        if self.direct.began_ns:
            self.direct.end(self._now())

    # --- events of members -------------------------------------------------------------------------

    def joined(self) -> bool:
        """Count a member, and return whether the member shares the question of another."""
        self.size += 1
        self.open += 1
        return self.size > 1

    def left(self, member: DepartedMember) -> None:
        """Record that a member has left."""
        self.open -= 1
        if self.open:
            member.over(carries_cost=False)
        elif self._working:
            self._pending = member
        else:
            self._last_left(member)

    def work_over(self) -> None:
        """Record that nothing is done for this group any more: the rest of its memory ends with its members."""
        self._working = False
        member, self._pending = self._pending, None
        if member is not None:
            self._last_left(member)

    def _last_left(self, member: DepartedMember) -> None:
        now_ns = self._now()
        self.heap.end(now_ns)
        self.direct.end(now_ns)
        member.over(carries_cost=True)

    def add_cost(self, event: dict[str, object]) -> None:
        """Add the cost of the group to the event of its last member."""
        heap, direct = self.heap, self.direct
        event["carries_cost"] = True
        event["heap_held_us"] = heap.held_us
        event["direct_held_us"] = direct.held_us
        event["heap_byte_us"] = heap.byte_us
        event["direct_byte_us"] = direct.byte_us


def stages_between(timeline: RequestTimeline, joined_ns: int, until_ns: int) -> tuple[list[int | None], int]:
    """Return the microseconds in each stage of a member that joined and left then, and the last of these stages."""
    found = list(_NEVER)
    stages, entered_ns = timeline.stages, timeline.entered_ns
    last, since = stages[0], joined_ns // 1000
    for stage, at_ns in zip(stages, entered_ns, strict=True):
        if at_ns > until_ns:
            break
        at = at_ns // 1000
        if at > since:
            found[last] = (found[last] or 0) + at - since
            since = at
        elif found[last] is None:
            # The group passed through in less than a microsecond.
            found[last] = 0
        last = stage
    found[last] = (found[last] or 0) + until_ns // 1000 - since
    return found, last
