"""The timeline of a request: at which step of its path it stands since when, and what memory it holds.

Rule: each step begins where the step before ended, so that the steps of any member of a group add up to the member's
life. Each group of topic lists has one timeline; a member adds when its request came, when the member joined and when
it left. Numbers only: no I/O, and nothing that could keep a list in memory. Without an event log there is none.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final

from proxy.telemetry.refusals import Stage

__all__ = ["STAGE_FIELDS", "GroupTimeline", "Meter", "Step", "Timeline"]

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
# These are null if never reached; the others are 0 then.
_MAY_BE_NULL: Final = ("broker_wait_us", "upstream_us", "read_us", "reader_wait_us", "write_us")
_NEVER: Final[tuple[int | None, ...]] = tuple(None if field in _MAY_BE_NULL else 0 for field in STAGE_FIELDS)


class Step(Enum):
    """A step of a request's path: the event's field that its time counts in, and the stage at which it is refused."""

    JOINED = "group_wait_us", Stage.BROKER
    TURN = "heap_wait_us", Stage.DIRECT
    HEAP = "heap_wait_us", Stage.HEAP
    CONNECTION = "broker_wait_us", Stage.BROKER_CONNECTION
    SLOT = "broker_wait_us", Stage.BROKER_BUSY
    QUESTION = "upstream_us", Stage.BROKER
    GROWTH = "heap_update_wait_us", Stage.HEAP
    READ = "read_us", Stage.BROKER
    READER = "reader_wait_us", Stage.CLIENT_BUSY
    DIRECT = "direct_wait_us", Stage.DIRECT
    WRITE = "write_us", Stage.CLIENT_BUSY

    def __init__(self, field: str, stage: Stage) -> None:
        self.number = STAGE_FIELDS.index(field)
        self.stage = stage


class Meter:
    """Integrate a permit's size over the time it is held; times in nanoseconds."""

    __slots__ = ("_at_ns", "_byte_ns", "_held_ns", "_size")

    def __init__(self) -> None:
        self._at_ns = self._byte_ns = self._held_ns = 0
        self._size: int | None = None

    def hold(self, now_ns: int, size: int | None) -> None:
        """Record that a permit of `size` bytes is held from now on; None: there is none any more."""
        if self._size is not None:
            self._byte_ns += self._size * (now_ns - self._at_ns)
            self._held_ns += now_ns - self._at_ns
        self._at_ns, self._size = now_ns, size

    @property
    def held_us(self) -> int:
        """Return how long permits were held."""
        return self._held_ns // 1000

    @property
    def byte_us(self) -> int:
        """Return the sum of bytes times the time for which they were held."""
        return self._byte_ns // 1000


class Timeline:
    """The steps of a path and when each was entered, and its memory; `now` returns monotonic nanoseconds."""

    __slots__ = ("direct", "direct_bytes", "entered_ns", "heap", "now", "stages")

    def __init__(self, now: Callable[[], int], step: Step) -> None:
        self.now = now
        self.stages = [step.number]
        self.entered_ns = [now()]
        self.heap, self.direct = Meter(), Meter()
        # What direct memory was asked for.
        self.direct_bytes: int | None = None

    def enter(self, step: Step) -> None:
        """Record that another step is reached."""
        if step.number != self.stages[-1]:
            self.stages.append(step.number)
            self.entered_ns.append(self.now())

    def heap_is(self, size: int | None) -> None:
        """Record the size of the permit of heap memory; None: it is released."""
        self.heap.hold(self.now(), size)

    def direct_is(self, size: int | None) -> None:
        """Record the size of the permit of direct memory; None: it is released."""
        self.direct.hold(self.now(), size)

    def took(self, since_ns: int, until_ns: int) -> tuple[list[int | None], int]:
        """Return the microseconds in each stage for who came and left then, and the last of these stages."""
        found = list(_NEVER)
        last, since = self.stages[0], since_ns // 1000
        for stage, at_ns in zip(self.stages, self.entered_ns, strict=True):
            if at_ns > until_ns:
                break
            at = at_ns // 1000
            if at > since:
                found[last] = (found[last] or 0) + at - since
                since = at
            elif found[last] is None:
                # The path passed through in less than a microsecond.
                found[last] = 0
            last = stage
        found[last] = (found[last] or 0) + until_ns // 1000 - since
        return found, last

    def add_cost(self, event: dict[str, object]) -> None:
        """Add what was held to the event that carries the cost."""
        now_ns = self.now()
        for name, meter in (("heap", self.heap), ("direct", self.direct)):
            meter.hold(now_ns, None)
            event[f"{name}_held_us"] = meter.held_us
            event[f"{name}_byte_us"] = meter.byte_us
        event["carries_cost"] = True


class GroupTimeline(Timeline):
    """The timeline of one group of topic lists, and what the group knows of its list.

    The event of the last member to leave carries the group's cost, so that event waits until the group's work is over.
    """

    __slots__ = (
        "_last",
        "_working",
        "broker",
        "filtered",
        "heap_actual_bytes",
        "heap_estimate_bytes",
        "name_bytes",
        "number",
        "open",
        "question",
        "question_hash",
        "size",
        "topic_count",
        "unchanged",
    )

    def __init__(self, now: Callable[[], int], number: int, broker: object, question: bytes) -> None:
        super().__init__(now, Step.JOINED)
        self._last: Callable[[bool], None] | None = None
        self._working = True
        self.number = number
        self.broker = broker
        self.question = question
        self.question_hash = ""
        self.size = self.open = 0
        self.heap_estimate_bytes: int | None = None
        self.heap_actual_bytes: int | None = None
        self.topic_count: int | None = None
        self.name_bytes: int | None = None
        self.filtered = self.unchanged = False

    def joined(self) -> bool:
        """Count a member, and return whether the member shares the question of another."""
        self.size += 1
        self.open += 1
        return self.size > 1

    def left(self, over: Callable[[bool], None]) -> None:
        """Call `over` when nothing changes any more for a member that leaves; with True if it carries the cost."""
        self.open -= 1
        if self.open or not self._working:
            over(not self.open)
        else:
            self._last = over

    def work_over(self) -> None:
        """Record that nothing is done for this group any more: the rest of its memory ends with its members."""
        self._working = False
        over, self._last = self._last, None
        if over is not None:
            over(True)
