"""The rules of shared topic lists as a machine of small numbers: requests, groups, heap and direct memory, disk.

A group goes TURN (behind the question before it), HEAP (waits for its estimate), ASKS, BROKER, GROWS (waits for the
size of the answer), DIRECT, WRITES, DISK, OVER. `Mutation` names rules that can be left out.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, NamedTuple


class Phase(Enum):
    """Where a group is."""

    TURN = auto()
    HEAP = auto()
    ASKS = auto()
    BROKER = auto()
    GROWS = auto()
    DIRECT = auto()
    WRITES = auto()
    DISK = auto()
    OVER = auto()


class Mutation(Enum):
    """A rule that is left out."""

    JOINS_AFTER_THE_QUESTION = auto()
    GROWTH_WITHIN_THE_LIMIT_ONLY = auto()
    GROWTH_WITHOUT_A_LIMIT = auto()
    NO_DISK = auto()
    LEAVERS_KEEP_PERMITS = auto()
    LEAVERS_KEEP_THE_TURN = auto()


JOINABLE: Final = (Phase.TURN, Phase.HEAP, Phase.ASKS)
WAITING, ANSWERED, LEFT = 1, 2, 3


class Setup(NamedTuple):
    """The sizes of a model: each request's key, who never reads, limits, sizes of answers, changes of topics."""

    keys: tuple[int, ...] = (0, 0, 1)
    silent: frozenset[int] = frozenset({2})
    heap: int = 2
    direct: int = 2
    estimate: int = 1
    sizes: tuple[int, ...] = (1, 3)
    changes: int = 1
    leaves: bool = True


class Request(NamedTuple):
    """A client's request: 0 until it arrives; its group; the topics' version when it came; was its answer older?"""

    status: int = 0
    group: int = -1
    born: int = 0
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Requests that share a question; `behind` is the group whose answer must begin first, -1: none."""

    key: int
    behind: int
    phase: Phase = Phase.TURN
    begun: bool = False
    version: int = -1
    size: int = 0
    heap: int = 0
    direct: int = 0


class State(NamedTuple):
    """Everything, as a value."""

    version: int
    requests: tuple[Request, ...]
    groups: tuple[Group, ...] = ()
    heap_line: tuple[int, ...] = ()
    growers: tuple[int, ...] = ()
    # The group whose growth went above the limit, and what it held before; -1: none.
    over: tuple[int, int] = (-1, 0)
    direct_line: tuple[int, ...] = ()


class Step(NamedTuple):
    """One thing that happens: its name, the request or group, the size of an answer."""

    name: str
    who: int = 0
    size: int = 0


# Steps that nobody may prevent for ever: the rest (arrivals, leaving, changes) may never come.
FAIR: Final = frozenset({"turn", "ask", "begin", "write", "spill"})


class Rules:
    """The steps that are possible in a state, and where they lead."""

    def __init__(self, setup: Setup, mutation: Mutation | None = None) -> None:
        self.setup = setup
        self.mutation = mutation

    def begin(self) -> State:
        """Return the state in which nobody has come."""
        return State(0, tuple(Request() for _ in self.setup.keys))

    def members(self, state: State, number: int) -> list[int]:
        """Return the requests of a group that wait for its answer."""
        return [at for at, one in enumerate(state.requests) if one.status == WAITING and one.group == number]

    def steps(self, state: State) -> list[Step]:
        """Return what can happen."""
        found = [Step("change")] if state.version < self.setup.changes else []
        for at, one in enumerate(state.requests):
            if one.status == 0:
                found.append(Step("arrive", at))
            elif one.status == WAITING:
                if self.setup.leaves:
                    found.append(Step("leave", at))
                if state.groups[one.group].phase in (Phase.WRITES, Phase.DISK) and at not in self.setup.silent:
                    found.append(Step("write", at))
        for number, group in enumerate(state.groups):
            if group.phase is Phase.TURN and (group.behind < 0 or state.groups[group.behind].begun):
                found.append(Step("turn", number))
            elif group.phase is Phase.ASKS:
                found.append(Step("ask", number))
            elif group.phase is Phase.BROKER:
                found += [Step("begin", number, size) for size in self.setup.sizes]
            elif group.phase is Phase.WRITES and state.direct_line and self.mutation is not Mutation.NO_DISK:
                found.append(Step("spill", number))
        return found

    def after(self, state: State, step: Step) -> State:
        """Return the state after a step."""
        if step.name == "change":
            return state._replace(version=state.version + 1)
        if step.name == "arrive":
            return self._arrive(state, step.who)
        if step.name == "leave":
            return self._gone(state, step.who, LEFT)
        if step.name == "write":
            return self._gone(state, step.who, ANSWERED)
        if step.name == "turn":
            state = _with(state, step.who, phase=Phase.HEAP, behind=-1)
            return self._serve(state._replace(heap_line=(*state.heap_line, step.who)))
        if step.name == "ask":
            return _with(state, step.who, phase=Phase.BROKER, version=state.version)
        if step.name == "begin":
            state = _with(state, step.who, phase=Phase.GROWS, begun=True, size=step.size)
            if self._may_grow(state, step.who):
                return self._serve(self._grown(state, step.who))
            return self._serve(state._replace(growers=(*state.growers, step.who)))
        return self._serve(_with(state, step.who, phase=Phase.DISK, direct=0))

    # --- requests and groups

    def _arrive(self, state: State, at: int) -> State:
        key = self.setup.keys[at]
        open_phases: tuple[Phase, ...] = JOINABLE
        if self.mutation is Mutation.JOINS_AFTER_THE_QUESTION:
            open_phases = (*JOINABLE, Phase.BROKER)
        number = next((n for n, one in enumerate(state.groups) if one.key == key and one.phase in open_phases), -1)
        if number < 0:
            number = len(state.groups)
            asked = (n for n, one in enumerate(state.groups) if one.key == key and one.phase is Phase.BROKER)
            state = state._replace(groups=(*state.groups, Group(key, next(asked, -1))))
        return _request(state, at, Request(WAITING, number, state.version))

    def _gone(self, state: State, at: int, status: int) -> State:
        one = state.requests[at]
        group = state.groups[one.group]
        # What is over is forgotten, so that equal futures are one state.
        stale = status == ANSWERED and group.version < one.born
        state = _request(state, at, Request(status, stale=stale))
        number = one.group
        if self.members(state, number):
            return state
        kept = status == LEFT and self.mutation is Mutation.LEAVERS_KEEP_PERMITS
        turn = self.mutation is Mutation.LEAVERS_KEEP_THE_TURN and not group.begun
        state = _with(
            state, number, phase=Phase.OVER, begun=not turn, behind=-1, version=-1, size=0,
            heap=group.heap if kept else 0, direct=group.direct if kept else 0,
        )  # fmt: skip
        state = state._replace(
            heap_line=_without(state.heap_line, number),
            growers=_without(state.growers, number),
            direct_line=_without(state.direct_line, number),
        )
        return self._serve(state)

    # --- memory: growth goes first, one growth at a time may pass the limit (ADR 3)

    def _serve(self, state: State) -> State:
        while (served := self._served_once(state)) is not None:
            state = served
        return state

    def _served_once(self, state: State) -> State | None:
        state = self._token(state)
        if state.growers:
            number = state.growers[0]
            if self._may_grow(state, number):
                return self._grown(state._replace(growers=state.growers[1:]), number)
        elif state.heap_line:
            number = state.heap_line[0]
            if _heap(state) + self.setup.estimate <= self.setup.heap:
                state = _with(state, number, phase=Phase.ASKS, heap=self.setup.estimate)
                return state._replace(heap_line=state.heap_line[1:])
        if state.direct_line:
            number = state.direct_line[0]
            size, held = state.groups[number].size, sum(one.direct for one in state.groups)
            # What is larger than the whole limit passes alone, and counts as the limit.
            booked = min(size, self.setup.direct)
            if held + booked <= self.setup.direct and (size <= self.setup.direct or not held):
                state = _with(state, number, phase=Phase.WRITES, direct=booked, heap=0)
                return state._replace(direct_line=state.direct_line[1:])
        return None

    def _token(self, state: State) -> State:
        number, before = state.over
        if number >= 0 and (_heap(state) <= self.setup.heap or state.groups[number].heap <= before):
            return state._replace(over=(-1, 0))
        return state

    def _may_grow(self, state: State, number: int) -> bool:
        state = self._token(state)
        group = state.groups[number]
        # An answer of the estimated size asks for nothing.
        if group.size <= group.heap or _heap(state) + group.size - group.heap <= self.setup.heap:
            return True
        if self.mutation is Mutation.GROWTH_WITHOUT_A_LIMIT:
            return True
        return state.over[0] in (-1, number) and self.mutation is not Mutation.GROWTH_WITHIN_THE_LIMIT_ONLY

    def _grown(self, state: State, number: int) -> State:
        before = state.groups[number].heap
        state = _with(self._token(state), number, phase=Phase.DIRECT, heap=state.groups[number].size)
        if _heap(state) > self.setup.heap and state.over[0] < 0:
            state = state._replace(over=(number, before))
        return state._replace(direct_line=(*state.direct_line, number))


def _heap(state: State) -> int:
    return sum(one.heap for one in state.groups)


def _with(state: State, number: int, **changes: object) -> State:
    groups = list(state.groups)
    groups[number] = replace(groups[number], **changes)  # type: ignore[arg-type]
    return state._replace(groups=tuple(groups))


def _request(state: State, at: int, one: Request) -> State:
    return state._replace(requests=(*state.requests[:at], one, *state.requests[at + 1 :]))


def _without(line: tuple[int, ...], number: int) -> tuple[int, ...]:
    return tuple(each for each in line if each != number)
