"""Visit every state that the rules reach, in every order of steps, and judge each.

Invariants: memory stays within its limits and one growth; no answer is older than its request; in a state in which no
fair step is left, everybody who reads has an answer; when nobody is left, all permits are zero. Every fair step brings
its group or request further, never back, so such a state is always reached: nobody waits for ever.
"""

from collections import deque
from dataclasses import dataclass, field

from tests.model.rules import ANSWERED, FAIR, LEFT, WAITING, Rules, State, Step


@dataclass
class Found:
    """The states, how each is reached first, and what is wrong in them."""

    states: int = 0
    steps: int = 0
    wrong: set[str] = field(default_factory=set)
    reached: dict[State, tuple[State, Step] | None] = field(default_factory=dict)

    def trace(self, state: State) -> list[Step]:
        """Return the steps by which a state was reached first."""
        steps: list[Step] = []
        while (before := self.reached[state]) is not None:
            state = before[0]
            steps.append(before[1])
        return steps[::-1]


def explore(rules: Rules) -> Found:
    """Visit all states."""
    first = rules.begin()
    found, waiting = Found(reached={first: None}), deque([first])
    while waiting:
        state = waiting.popleft()
        found.states += 1
        steps = rules.steps(state)
        found.wrong |= set(judged(rules, state, steps))
        for step in steps:
            found.steps += 1
            following = rules.after(state, step)
            if following not in found.reached:
                found.reached[following] = (state, step)
                waiting.append(following)
    return found


def judged(rules: Rules, state: State, steps: list[Step]) -> list[str]:
    """Name what is wrong in a state."""
    setup, wrong = rules.setup, []
    growth = max(setup.sizes) - setup.estimate
    heap, direct = sum(one.heap for one in state.groups), sum(one.direct for one in state.groups)
    if heap > setup.heap + growth:
        wrong.append("heap is not bounded")
    if direct > setup.direct:
        wrong.append("direct is not bounded")
    if any(one.stale for one in state.requests):
        wrong.append("an answer is older than its request")
    if any(step.name in FAIR for step in steps):
        return wrong
    if any(one.status == WAITING and at not in setup.silent for at, one in enumerate(state.requests)):
        wrong.append("somebody waits for ever")
    if all(one.status in (0, ANSWERED, LEFT) for one in state.requests) and (heap or direct):
        wrong.append("permits are not zero at the end")
    return wrong
