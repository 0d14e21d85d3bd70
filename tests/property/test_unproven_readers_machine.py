"""Drive the share of unproven readers with generated clients over real semaphores, and check the books at each step.

At the end all lists end one after the other, without time and without cancels, and nobody may be left: that is the
freedom from deadlock.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from limiter import AsyncDualMemoryLimiter, AsyncSemaphore, Permit
from proxy.requests.reader_shares import AnswerShare
from proxy.requests.topic_lists.unproven import UnprovenReaders
from tests.support.clients.reader_output import ReaderOutput
from tests.support.loops.clock import ManualClock

LIMIT, PERCENT = 20, 50
HALF = LIMIT * PERCENT // 100
# One half of the share is for clients that are awake.
SIZES = st.integers(1, HALF // 2)
PICK = st.integers(0, 1000)


@dataclass(eq=False)
class Member:
    output: ReaderOutput
    left: bool = False

    @property
    def client(self) -> "Member":
        return self


@dataclass(eq=False)
class List:
    """A list on its way: its waits are the steps of `TopicListService`, in their order."""

    rule: UnprovenReaders
    direct: AsyncSemaphore
    key: str
    size: int
    reader: ReaderOutput
    share: Permit | None = None
    memory: Permit | None = None
    task: "asyncio.Task[None] | None" = field(default=None, repr=False)
    share_ends_when_standing: bool = False
    awake_until: float = 0.0
    unproven: bool = True

    @property
    def members(self) -> list[Member]:
        return [Member(self.reader)]

    def try_acquire(self, memory: AsyncSemaphore, n: int, *, of_share: bool = False) -> Permit | None:
        return memory.try_acquire(n, key=self.key)

    async def acquire(self, memory: AsyncSemaphore, n: int, *, of_share: bool = False) -> Permit:
        return await memory.acquire(n, key=self.key)

    @property
    def share_key(self) -> str:
        return self.key

    key_of_first = share_key

    async def go(self) -> None:
        try:
            self.share = await self.rule.share_for(self, [Member(self.reader)], self.size, self.size)  # type: ignore[arg-type,list-item]
            self.memory = await self.direct.acquire(self.size, key=self.key)
        except asyncio.CancelledError:
            self.end()
            raise

    @property
    def shared(self) -> bool:
        """Return whether it has a share, which it was given before its client was proven, too."""
        return self.share is not None

    def proven(self) -> None:
        self.reader.reads = True
        if self.share is not None:
            self.share.release()

    def end(self) -> None:
        for permit in (self.share, self.memory):
            if permit is not None:
                permit.release()


class Schema(List):
    """A schema on its way: its waits are those of `SchemaService`, whose broker answers at once."""

    answer: AnswerShare

    async def go(self) -> None:
        self.answer = self.rule.shares.for_answer(self.reader, self.key)  # type: ignore[arg-type]
        try:
            while not self.answer.try_take(self.size, self.size):
                await self.answer.wait(self.size)
            self.memory = await self.direct.acquire(self.size, key=self.key)
        except asyncio.CancelledError:
            self.end()
            raise

    @property
    def shared(self) -> bool:
        return self.answer.held

    def proven(self) -> None:
        super().proven()
        self.answer.end()

    def end(self) -> None:
        super().end()
        self.answer.end()


class UnprovenReadersMachine(RuleBasedStateMachine):
    """The rule, direct memory, and lists of clients that read or do not."""

    @initialize(share_by_key=st.booleans())
    def begin(self, share_by_key: bool) -> None:
        self.loop = asyncio.new_event_loop()
        self.limiter = AsyncDualMemoryLimiter(
            *(
                AsyncSemaphore(name, limit, max_queue=0, timeout_seconds=1e9, clock=ManualClock())
                for name, limit in (("heap", 0), ("direct", LIMIT))
            )
        )
        self.rule = UnprovenReaders(self.limiter, ManualClock(), PERCENT)
        for memory in (self.limiter, self.rule):
            memory.set_sharing(share_by_key, 100)
        self.lists: list[List] = []

    @rule(size=SIZES, reads=st.booleans(), key=st.sampled_from("ab"), kind=st.sampled_from([List, Schema]))
    def arrive(self, size: int, reads: bool, key: str, kind: type[List]) -> None:
        new = kind(self.rule, self.limiter.direct, key, size, ReaderOutput(reads=reads))
        new.task = self.loop.create_task(new.go())
        self.lists.append(new)
        self.step()

    @precondition(lambda self: self.lists)
    @rule(pick=PICK)
    def take_bytes(self, pick: int) -> None:
        taking = self.lists[pick % len(self.lists)]
        if taking.memory is not None:
            taking.proven()
        self.step()

    @precondition(lambda self: self.lists)
    @rule(pick=PICK)
    def answer_a_ping(self, pick: int) -> None:
        self.loop.call_soon(self.lists[pick % len(self.lists)].reader.pong)
        self.step()

    @invariant()
    def who_answers_waits_only_for_others_that_answered(self) -> None:
        shares = self.rule.shares
        if shares.awake.queue_size:
            assert shares.awake.held > 0

    @precondition(lambda self: self.lists)
    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        gone = self.lists.pop(pick % len(self.lists))
        assert gone.task is not None
        gone.task.cancel()
        gone.end()
        self.step()

    @invariant()
    def unproven_readers_hold_half_at_most(self) -> None:
        assert sum(each.size for each in self.holding(reads=False)) <= HALF

    @invariant()
    def proven_readers_wait_only_for_memory_that_proven_readers_hold(self) -> None:
        waiting = [each.size for each in self.lists if each.memory is None and each.reader.reads and not each.shared]
        if waiting:
            assert sum(each.size for each in self.holding(reads=True)) + HALF + max(waiting) > LIMIT

    def holding(self, *, reads: bool) -> list[List]:
        return [each for each in self.lists if each.memory is not None and each.reader.reads is reads]

    def step(self) -> None:
        self.loop.run_until_complete(_turns())

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        while self.lists:
            done = [each for each in self.lists if each.memory is not None]
            assert done, "lists wait for each other"
            done[0].end()
            self.lists.remove(done[0])
            self.step()
        assert (self.limiter.direct.held, self.rule.shares.held, self.rule.short) == (0, 0, False)
        self.loop.close()


async def _turns() -> Any:
    for _ in range(6):
        await asyncio.sleep(0)


TestUnprovenReaders = UnprovenReadersMachine.TestCase
TestUnprovenReaders.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
