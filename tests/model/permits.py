"""Own the rules of a permit of several nodes, as plain functions of a state: small, and explored state by state.

A node is a limit: of a broker, of what arrives, of all (the last of each permit). The rules:
- A permit is booked at all its nodes or at none. Its nodes have one order, that of all of them last.
- Growth goes before acquires, in the order of arrival; growth that fits at all its nodes passes growth that does not.
  At a node one permit may overshoot: who grows overshoots at all its nodes that are full, or waits.
- Acquires go in the order of arrival. One that does not fit at a node stands there, and nobody behind it is let in
  there, or at the nodes that it fits at before that one. So a full node holds up nobody who does not need it.
- A part of a node may be kept for keys that hold nothing there. A key that holds something stands at that part: it
  holds up its like, and no newcomer.
- An acquire larger than a node takes all of it, once it is empty.
- `leave` gives back what a permit has at a node while it is held, and never waits.
- A step grants to a few; the rest go on in the next step of the loop, and nobody passes them until then.

In series (what production has, `semaphore.py`): a permit is one of each node, taken one after the other. Who has
passed a node holds it, and goes to the end of the line of the next one. Only the last node's permit grows, and not
before the node that the client leaves was left: a list begins to arrive, and its broker's share ends, before it grows.
Not explored: room for an answer, which is taken while heap memory is held (docs/adr/0036).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class Phase(IntEnum):
    """What a client does."""

    IDLE = 0
    WAITS = 1
    HOLDS = 2
    GROWS = 3


@dataclass(frozen=True)
class Client:
    """What a client asks for, again and again: `nodes` in order, to what it grows, which node it leaves meanwhile."""

    nodes: tuple[int, ...]
    size: int = 1
    grows: tuple[int, ...] = ()
    leaves: int = -1
    key: str = ""


class Slot(NamedTuple):
    """A client's state: what it has at each of its nodes."""

    phase: Phase
    booked: tuple[int, ...]
    grew: int = 0
    left: bool = False


class State(NamedTuple):
    """Clients, who waits in the order of arrival, who overshoots where and from what, whether a step is to come."""

    slots: tuple[Slot, ...]
    line: tuple[int, ...] = ()
    growers: tuple[int, ...] = ()
    over: frozenset[tuple[int, int, int]] = frozenset()
    more: bool = False


@dataclass(frozen=True)
class Rules:
    """The rules for some nodes and clients; what may be chosen otherwise is there to be seen to fail."""

    limits: tuple[int, ...]
    clients: tuple[Client, ...]
    kept: tuple[int, ...] = ()
    a_step: int = 1
    # Otherwise: those behind are held up at the full node alone.
    holds_what_it_passed: bool = True
    goes_on: bool = True
    in_series: bool = False

    def start(self) -> State:
        """Return the state in which nobody has asked."""
        return State(tuple(self._idle(client) for client in self.clients))

    def moves(self, state: State) -> Iterator[tuple[str, int, State]]:
        """Yield what each client may do, or the loop (-1), and the state that follows."""
        if state.more:
            yield "go on", -1, self.serve(state)
        for who, slot in enumerate(state.slots):
            if slot.phase is Phase.IDLE:
                asked = _with(state, who, slot._replace(phase=Phase.WAITS))
                yield "ask", who, self.serve(asked._replace(line=(*asked.line, who)))
            elif slot.phase is not Phase.HOLDS:
                yield "cancel", who, self.serve(self._cancelled(state, who))
            else:
                yield "release", who, self.serve(self._shrunk(state, who, self._idle(self.clients[who])))
                if slot.grew < len(self.clients[who].grows) and (slot.left or not self.in_series):
                    grows = _with(state, who, slot._replace(phase=Phase.GROWS))
                    yield "grow", who, self.serve(grows._replace(growers=(*grows.growers, who)), asking=who)
                if self.clients[who].leaves >= 0 and not slot.left:
                    yield "leave", who, self.serve(self._shrunk(state, who, self._left(who, slot)))

    def serve(self, state: State, asking: int | None = None) -> State:
        """Grant to as many as one step may; `asking` grows without having waited, if it may."""
        if asking is not None and self.may_grow(state, asking):
            state = self._grow(state, asking)
        for _ in range(self.a_step):
            granted = self.next(state)
            if granted is None:
                return state._replace(more=False)
            state = granted
        return state._replace(more=self.goes_on and self.next(state) is not None)

    def next(self, state: State) -> State | None:
        """Return the state after the next grant; None if nobody may go."""
        for who in state.growers:
            if self.may_grow(state, who):
                return self._grow(state, who)
        return self._next_in_series(state) if self.in_series else self._next_in_line(state)

    def _next_in_line(self, state: State) -> State | None:
        closed: set[tuple[int, bool]] = set()
        for who in state.line:
            stands = self._stands_at(state, who, closed)
            if stands is None:
                client = self.clients[who]
                booked = tuple(min(client.size, self.limits[node]) for node in client.nodes)
                state = _with(state, who, Slot(Phase.HOLDS, booked))
                return state._replace(line=tuple(other for other in state.line if other != who))
            at, for_holders = stands
            nodes = self.clients[who].nodes
            first = 0 if self.holds_what_it_passed else at
            closed.update((node, for_holders) for node in nodes[first : at + 1])
        return None

    def _next_in_series(self, state: State) -> State | None:
        stands: set[int] = set()
        for who in state.line:
            client, booked = self.clients[who], state.slots[who].booked
            at = booked.index(0)
            node = client.nodes[at]
            limit, held = self.limits[node], self.held(state, node)
            if node not in stands and (held + client.size <= limit or (client.size > limit and not held)):
                booked = (*booked[:at], min(client.size, limit), *booked[at + 1 :])
                phase = Phase.WAITS if 0 in booked else Phase.HOLDS
                line = tuple(other for other in state.line if other != who)
                line = (*line, who) if phase is Phase.WAITS else line
                return _with(state, who, Slot(phase, booked))._replace(line=line)
            stands.add(node)
        return None

    def _stands_at(self, state: State, who: int, closed: set[tuple[int, bool]]) -> tuple[int, bool] | None:
        """Return at which of its nodes an acquire stands, and whether only because its key holds something there."""
        client = self.clients[who]
        for at, node in enumerate(client.nodes):
            limit, held = self.limits[node], self.held(state, node)
            if (node, False) in closed or not (held + client.size <= limit or (client.size > limit and not held)):
                return at, False
            kept = self.kept[node] if self.kept else 0
            is_aside = (node, True) in closed or held + client.size > limit - kept
            if kept and is_aside and self.held(state, node, client.key):
                return at, True
        return None

    def may_grow(self, state: State, who: int) -> bool:
        """Return whether a permit may grow now."""
        full = self._full(state, who)
        return not any(node in full and other != who for node, other, _ in state.over)

    def held(self, state: State, node: int, key: str | None = None) -> int:
        """Return what all clients have at a node, or those of a key."""
        return sum(
            booked
            for client, slot in zip(self.clients, state.slots, strict=True)
            if key in (None, client.key)
            for its, booked in zip(client.nodes, slot.booked, strict=True)
            if its == node
        )

    def _full(self, state: State, who: int) -> list[int]:
        client, booked = self.clients[who], state.slots[who].booked
        return [
            node
            for node, before, after in zip(client.nodes, booked, self._grown(state, who), strict=True)
            if after > before and self.held(state, node) + after - before > self.limits[node]
        ]

    def _grown(self, state: State, who: int) -> tuple[int, ...]:
        slot = state.slots[who]
        return tuple(booked and self.clients[who].grows[slot.grew] for booked in slot.booked)

    def _grow(self, state: State, who: int) -> State:
        slot, full = state.slots[who], self._full(state, who)
        over = {(node, who, before) for node, before in zip(self.clients[who].nodes, slot.booked, strict=True)}
        grown = slot._replace(phase=Phase.HOLDS, booked=self._grown(state, who), grew=slot.grew + 1)
        already = {node for node, _, _ in state.over}
        return _with(state, who, grown)._replace(
            growers=tuple(other for other in state.growers if other != who),
            over=state.over | {each for each in over if each[0] in full and each[0] not in already},
        )

    def _cancelled(self, state: State, who: int) -> State:
        slot = state.slots[who]
        waits = slot.phase is Phase.WAITS
        state = _with(state, who, self._idle(self.clients[who]) if waits else slot._replace(phase=Phase.HOLDS))
        return state._replace(
            line=tuple(other for other in state.line if other != who),
            growers=tuple(other for other in state.growers if other != who),
        )

    def _left(self, who: int, slot: Slot) -> Slot:
        client = self.clients[who]
        booked = tuple(0 if node == client.leaves else its for node, its in zip(client.nodes, slot.booked, strict=True))
        return slot._replace(booked=booked, left=True)

    def _shrunk(self, state: State, who: int, slot: Slot) -> State:
        """Book a smaller permit; an overshoot ends where nothing is above the limit, or the permit is as before."""
        state = _with(state, who, slot)
        over = {
            (node, other, before)
            for node, other, before in state.over
            if self.held(state, node) > self.limits[node]
            and dict(zip(self.clients[other].nodes, state.slots[other].booked, strict=True))[node] > before
        }
        return state._replace(over=frozenset(over))

    @staticmethod
    def _idle(client: Client) -> Slot:
        return Slot(Phase.IDLE, (0,) * len(client.nodes))


def _with(state: State, who: int, slot: Slot) -> State:
    return state._replace(slots=(*state.slots[:who], slot, *state.slots[who + 1 :]))


Edges = dict[State, list[tuple[str, int, State]]]


def explore(rules: Rules, check: Callable[[State], None]) -> Edges:
    """Return all states that can be reached, each with its moves, after checking each."""
    edges: Edges = {}
    ahead = [rules.start()]
    while ahead:
        state = ahead.pop()
        if state in edges:
            continue
        check(state)
        edges[state] = list(rules.moves(state))
        ahead += [after for _, _, after in edges[state]]
    return edges


def circles(edges: Edges, within: set[State]) -> Iterator[set[State]]:
    """Yield each largest set of states that can be gone through again and again without leaving `within` (Tarjan)."""
    numbers: dict[State, int] = {}
    low: dict[State, int] = {}
    path: list[State] = []
    on_path: set[State] = set()
    for root in within:
        if root in numbers:
            continue
        calls = [(root, iter(edges[root]))]
        numbers[root] = low[root] = len(numbers)
        path.append(root)
        on_path.add(root)
        while calls:
            state, moves = calls[-1]
            for _, _, after in moves:
                if after not in within:
                    continue
                if after not in numbers:
                    numbers[after] = low[after] = len(numbers)
                    path.append(after)
                    on_path.add(after)
                    calls.append((after, iter(edges[after])))
                    break
                if after in on_path:
                    low[state] = min(low[state], numbers[after])
            else:
                calls.pop()
                if calls:
                    low[calls[-1][0]] = min(low[calls[-1][0]], low[state])
                if low[state] == numbers[state]:
                    found = set(path[path.index(state) :])
                    del path[len(path) - len(found) :]
                    on_path -= found
                    if len(found) > 1:
                        yield found
