"""Play the steps of the model on the real groups and the real semaphores, and give their books in the model's words.

Rule: only what the model has a step for is left to a gate here; everything else happens by itself, and must lead to the
same books. The two sides share no code but the names of the steps.
"""

import asyncio
from collections.abc import Hashable
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from limiter import AsyncSemaphore, Permit
from limiter.errors import PermitAcquireError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers.target import BrokerAddress
from proxy.core.tasks import TaskScope
from proxy.requests.client import ClientView
from proxy.requests.topic_lists.groups import GroupMember, ListGroup, ListGroups
from tests.model.rules import JOINABLE, WAITING, Phase, Rules, Setup, State, Step
from tests.support.loops.clock import ManualClock

_BROKER = BrokerAddress("broker", 6650)


class Books(NamedTuple):
    """What both sides count."""

    heap: int
    heap_line: int
    growers: int
    direct: int
    direct_line: int
    members: tuple[tuple[int, ...], ...]
    joinable: tuple[bool, ...]


def books_of(rules: Rules, state: State) -> Books:
    """Return the books of a state of the model."""
    numbers = range(len(state.groups))
    return Books(
        sum(one.heap for one in state.groups), len(state.heap_line), len(state.growers),
        sum(one.direct for one in state.groups), len(state.direct_line),
        tuple(tuple(rules.members(state, number)) for number in numbers),
        tuple(state.groups[number].phase in JOINABLE for number in numbers),
    )  # fmt: skip


class _Work:
    """One group: its gates, its permits, its members by number of the request."""

    def __init__(self, group: ListGroup) -> None:
        self.group = group
        self.turn, self.ask, self.begin = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.size = 0
        self.heap: Permit | None = None
        self.direct: Permit | None = None
        self.members: dict[int, GroupMember] = {}


class Real:
    """The code's side of a play."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        clock = ManualClock()
        self.heap = AsyncSemaphore("heap", setup.heap, max_queue=0, timeout_seconds=1e6, clock=clock)
        self.direct = AsyncSemaphore("direct", setup.direct, max_queue=0, timeout_seconds=1e6, clock=clock)
        self.groups = ListGroups(asyncio.get_running_loop(), _key)
        self.works: list[_Work] = []
        self.crashes: list[BaseException] = []
        self._scope = TaskScope(self.crashes.append)

    def close(self) -> None:
        """End what still runs."""
        self._scope.cancel()

    async def play(self, step: Step) -> None:
        """Let a step happen, and all that follows from it by itself."""
        if step.name == "arrive":
            self._arrive(step.who)
        elif step.name in ("leave", "write"):
            self._gone(step.who)
        elif step.name == "spill":
            self.works[step.who].group.moved_to_disk()
            _release(self.works[step.who].direct)
        elif step.name != "change":
            work = self.works[step.who]
            work.size = step.size
            getattr(work, step.name).set()
        for _ in range(12):
            await asyncio.sleep(0)

    def books(self) -> Books:
        """Return the books now."""
        return Books(
            self.heap.held, self.heap.queue_size, self.heap.growers_waiting, self.direct.held, self.direct.queue_size,
            tuple(tuple(sorted(work.members)) for work in self.works),
            tuple(self.groups.takes_joiners(work.group) for work in self.works),
        )  # fmt: skip

    def _arrive(self, at: int) -> None:
        request = pb.CommandGetTopicsOfNamespace(request_id=at, namespace=f"t/{self.setup.keys[at]}")
        output = SimpleNamespace(write_lock=SimpleNamespace(reserve=lambda: None, unreserve=lambda: None))
        client = cast(ClientView, SimpleNamespace(principal="alice", name=str(at), output=output))
        group, member, new = self.groups.join(client, _BROKER, request, share=True)
        if new:
            self.works.append(_Work(group))
            work = self.works[-1]
            group.work_started(self._scope.start(self._work(work)))
        work = next(work for work in self.works if work.group is group)
        work.members[at] = member

    def _gone(self, at: int) -> None:
        work = next(work for work in self.works if at in work.members)
        work.group.leave(work.members.pop(at))
        if not work.members:
            _release(work.heap)
            _release(work.direct)

    async def _work(self, work: _Work) -> None:
        group = work.group
        await work.turn.wait()
        # The model lets a turn come only when the question before has its answer.
        assert group.predecessor is None or group.predecessor.is_set()
        try:
            work.heap = await self.heap.acquire(self.setup.estimate)
            await work.ask.wait()
            self.groups.asked(group)
            await work.begin.wait()
            self.groups.answer_begun(group)
            await self.heap.update(work.heap, work.size)
            work.direct = await self.direct.acquire(work.size)
        except PermitAcquireError:
            # The last member left while its permit waited to grow.
            return
        finally:
            _release(work.heap)
        group.work_over()


def _key(client: ClientView, namespace: str) -> Hashable:
    del client, namespace
    return None


def _release(permit: Permit | None) -> None:
    if permit is not None:
        permit.release()


async def first_difference(rules: Rules, trace: list[Step]) -> str:
    """Play a trace on both sides, and say where their books differ first; empty if nowhere."""
    real, state, played = Real(rules.setup), rules.begin(), []
    try:
        for step in trace:
            played.append(step)
            state = rules.after(state, step)
            await real.play(step)
            ours, theirs = books_of(rules, state), real.books()
            if real.crashes or ours != theirs:
                return f"after {_told(played)}: the model has {ours}, the code {theirs}, {real.crashes}"
    finally:
        real.close()
        await asyncio.sleep(0)
    return ""


def _told(steps: list[Step]) -> str:
    return ", ".join(f"{step.name} {step.who}" for step in steps)


def waits(state: State) -> Any:
    """Tell whether a group waits for memory in a state: such traces are the ones worth playing."""
    return any(one.phase in (Phase.HEAP, Phase.GROWS, Phase.DIRECT) for one in state.groups) and any(
        one.status == WAITING for one in state.requests
    )
