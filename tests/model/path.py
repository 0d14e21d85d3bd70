"""Play the steps of the model on the whole path of a list: the real service, between clients and brokers in memory.

Rule: a turn and a question come by themselves there, as soon as they can, so that the model takes these steps as soon
as it can, too. A size of the model is as many units on the wire and in memory, less a little; limits are half a unit
more. What the model leaves out is switched off: lists stay in memory, and estimates on a broker have no bound.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from protocol.pb import PulsarApi_pb2 as pb
from proxy.requests.topic_lists.broker_queues import TopicListLimits
from proxy.requests.topic_lists.groups import ListGroup
from tests.model.real import Books, books_of
from tests.model.rules import Mutation, Rules, Setup, State, Step
from tests.support.clients.list_clients import ListClient
from tests.support.proxies.list_stage import BROKER, KIB, Asked, ListStage, Sizes

UNIT: Final = 128 * KIB
# What heap memory has beside the names of a list: so much smaller is a list than its units.
LESS: Final = 8 * KIB
CONNECTIONS: Final = 8
FOR_EVER: Final = 1e6
TURNS: Final = 40
BY_THEMSELVES: Final = ("turn", "ask")


class EagerRules(Rules):
    """The rules of a model in which turns and questions come as soon as they can, and nothing moves to disk."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup, Mutation.NO_DISK)

    def steps(self, state: State) -> list[Step]:
        return [step for step in super().steps(state) if step.name not in BY_THEMSELVES]

    def after(self, state: State, step: Step) -> State:
        state = super().after(state, step)
        while own := [step for step in super().steps(state) if step.name in BY_THEMSELVES]:
            state = super().after(state, own[0])
        return state


class _Sizes(Sizes):
    @property
    def limits(self) -> TopicListLimits:
        return replace(super().limits, max_answer_bytes=8 * UNIT, request_timeout_seconds=FOR_EVER)


class _Estimates:
    """Every list is taken for one of the same size."""

    def __init__(self, size: int) -> None:
        self.initial_bytes = size

    def estimate(self, request: pb.CommandGetTopicsOfNamespace) -> int:
        return self.initial_bytes

    def known(self, request: pb.CommandGetTopicsOfNamespace) -> None:
        return None

    def learn(self, request: pb.CommandGetTopicsOfNamespace, cost: int) -> bool:
        return False


class Path:
    """The code's side of a play."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        heap, direct = (limit * UNIT + UNIT // 2 for limit in (setup.heap, setup.direct))
        self.stage = stage = ListStage(_Sizes(heap, direct, acquire_seconds=FOR_EVER))
        stage.service._sizes = _Estimates(setup.estimate * UNIT)  # type: ignore[assignment]
        stage.pool._limits = replace(stage.pool._limits, per_key=CONNECTIONS)
        stage.queues.queue(BROKER).reservations.set_limit(0)
        self.clients: dict[int, ListClient] = {}
        self.numbers: dict[int, int] = {}
        self.groups: list[ListGroup] = []
        self._join = stage.service._groups.join
        stage.service._groups.join = self._joined  # type: ignore[method-assign]

    def _joined(self, *given: Any, **named: Any) -> Any:
        joined = self._join(*given, **named)
        if joined[2]:
            self.groups.append(joined[0])
        return joined

    def play(self, step: Step) -> None:
        """Let a step happen, and all that follows from it by itself."""
        stage, at = self.stage, step.who
        if step.name == "arrive":
            client = self.clients[at] = stage.client("alice", room=0)
            self.numbers[stage.ask(client, self._namespace(at), logged=False)] = at
        elif step.name == "leave":
            stage.call(self.clients[at].leave)
        elif step.name == "write":
            stage.call(self.clients[at].read)
        elif step.name == "change":
            for number in range(len(self.setup.keys)):
                name = self._namespace(number)
                stage.versions[name] = stage.versions.get(name, 0) + 1
        else:
            assert step.name == "begin", step
            asked = self._question_of(self.groups[at])
            stage.call(asked.broker.begin, asked, step.size * UNIT - LESS)
        for _ in range(3):
            stage.step(TURNS)
            for asked in self._unsent():
                stage.call(asked.broker.go_on, asked, len(asked.unsent))
        stage.step(TURNS)

    def books(self) -> Books:
        """Return the books now, in units."""
        heap, direct = self.stage.limiter.heap, self.stage.limiter.direct
        return Books(
            _units(heap.held), heap.queue_size, heap.growers_waiting, _units(direct.held), direct.queue_size,
            tuple(tuple(sorted(self.numbers[member.request_id] for member in each.members)) for each in self.groups),
            tuple(self.stage.service.groups.takes_joiners(each) for each in self.groups),
        )  # fmt: skip

    def faults(self) -> list[BaseException]:
        """Return what went wrong beside the books."""
        return [*self.stage.reports, *(crash for client in self.stage.clients for crash in client.crashes)]

    def _namespace(self, at: int) -> str:
        return f"t/{self.setup.keys[at]}"

    def _question_of(self, group: ListGroup) -> Asked:
        (found,) = (
            asked
            for asked in self.stage.asked()
            if not asked.begun and not asked.abandoned and asked.request.namespace == group.request.namespace
        )
        return found

    def _unsent(self) -> Iterator[Asked]:
        for asked in self.stage.asked():
            if asked.begun and asked.unsent and not asked.broker.connection.paused:
                yield asked


def _units(held: int) -> int:
    # A list is a little smaller than its units, and one that is larger than a limit counts as the limit.
    return int(held / UNIT + 0.3)


def first_difference(rules: EagerRules, trace: list[Step]) -> str:
    """Play a trace on both sides, and say where their books differ first; empty if nowhere."""
    path, state, played = Path(rules.setup), rules.begin(), list[str]()
    try:
        for step in trace:
            played.append(f"{step.name} {step.who}")
            state = rules.after(state, step)
            path.play(step)
            ours, theirs = books_of(rules, state), path.books()
            if ours != theirs or path.faults():
                return f"after {', '.join(played)}: the model has {ours}, the code {theirs}, {path.faults()}"
    finally:
        path.stage.close()
    return ""
