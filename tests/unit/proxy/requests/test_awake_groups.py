"""A PING that a client has answered serves the question of its group and the memory of the answer."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from limiter.charge import Charge
from limiter.dual import AsyncDualMemoryLimiter
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from proxy.requests.topic_lists.broker_queues import UNPROVEN_HEAP_PART
from proxy.requests.topic_lists.heap_crowds import AskAgain
from proxy.requests.topic_lists.unproven import (
    AWAKE_BEHIND_HEAP_PART,
    AWAKE_HEAP_PART,
    AWAKE_SECONDS,
    BEHIND_HEAP_PART,
    MEMBERS_AT_ONCE,
    UnprovenReaders,
)
from proxy.telemetry.limiter_metrics import LimiterMetrics
from tests.support.loops.clock import ManualClock

SIZE = 1024 * 1024
LIMIT = 16 * SIZE


class Reader:
    """The output of a client that has shown nothing yet, and counts the PINGs it gets."""

    reads = False

    def __init__(self) -> None:
        self.pings = 0
        self.answered: Callable[[], None] | None = None

    def has_room_for(self, size: int) -> bool:
        return False

    def call(self, answered: Callable[[], None]) -> None:
        self.pings += 1
        self.answered = answered

    def uncall(self, answered: Callable[[], None]) -> None:
        self.answered = None


@dataclass(eq=False)
class Group:
    """A group of one client, as `UnprovenReaders` sees it."""

    output: Reader = field(default_factory=Reader)
    left: bool = False
    turn: Permit | None = None
    awake_until: float = 0.0
    behind: bool = False
    unproven: bool = True
    share_key: str = "key"
    share_ends_when_standing: bool = False

    @property
    def client(self) -> "Group":
        return self

    @property
    def charged_member(self) -> "Group":
        return self

    @property
    def members(self) -> list["Group"]:
        return [self]

    def charge(self, memory: AsyncSemaphore, size: int) -> Charge:
        return Charge("key")

    charge_share = charge

    def key_of(self, member: "Group") -> str:
        return "key"

    def stands_at(self, *_: object) -> None: ...

    def end_turn(self) -> None:
        if self.turn is not None:
            self.turn.release()
            self.turn = None


@dataclass
class Queue:
    """The questions to one broker, of which no more may go out."""

    unproven: AsyncSemaphore


class Scene:
    """Memory of which silent clients hold all that they may."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        limiter = AsyncDualMemoryLimiter.create(
            heap_limit_bytes=LIMIT, heap_max_queue=100, heap_timeout_seconds=10, direct_limit_bytes=LIMIT,
            direct_max_queue=100, direct_timeout_seconds=10, clock=self.clock,
        )  # fmt: skip
        self.rule = UnprovenReaders(limiter, LimiterMetrics(self.clock.time), self.clock, 50)
        self.queue = Queue(AsyncSemaphore("questions", 1, max_queue=100, timeout_seconds=10, clock=self.clock))
        question = self.queue.unproven.try_acquire(1)
        share = self.rule.share.try_acquire(self.rule.share.limit)
        assert question is not None
        assert share is not None
        self._silent = [question, share]
        self.group = Group()
        self.tasks: list[asyncio.Task[None]] = []

    def free(self) -> None:
        """End what silent clients hold."""
        for permit in self._silent:
            permit.release()

    async def asked(self) -> None:
        """Have the group wait for its question until its client answers a PING."""
        asking = asyncio.get_running_loop().create_task(self.rule.may_ask(*self.parts(self.queue, SIZE)))
        await self.answered(asking)

    def waits_for_memory(self) -> "asyncio.Task[Permit | None]":
        """Have the answer wait for its share."""
        return asyncio.get_running_loop().create_task(self.rule.share_for(*self.parts([self.group], SIZE, SIZE)))

    async def answered(self, waiting: "asyncio.Task[Any]") -> Any:
        """Answer the PING that the group sends because of a wait, and return what the wait brings."""
        while self.group.output.answered is None:
            assert not waiting.done()
            await asyncio.sleep(0)
        self.group.output.answered()
        return await waiting

    def parts(self, *rest: Any) -> Any:
        return (self.group, *rest)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def settled(waiting: "asyncio.Task[Permit | None]") -> Permit | None:
    """Return what a wait brings that nobody has to end."""
    await turns()
    assert waiting.done()
    return await waiting


def run(story: Callable[[Scene], Any]) -> None:
    async def body() -> None:
        await story(Scene())

    asyncio.run(body())


def test_a_ping_answered_for_the_question_serves_the_memory_too() -> None:
    async def story(scene: Scene) -> None:
        await scene.asked()
        share = await settled(scene.waits_for_memory())
        assert share is not None
        assert share.owner is scene.rule.shares.awake
        assert scene.group.share_ends_when_standing
        assert scene.group.output.pings == 1

    run(story)


def test_a_ping_answered_long_ago_is_sent_again() -> None:
    async def story(scene: Scene) -> None:
        await scene.asked()
        scene.clock.advance(AWAKE_SECONDS)
        share = await scene.answered(scene.waits_for_memory())
        assert share.owner is scene.rule.shares.awake
        assert scene.group.output.pings == 2

    run(story)


def test_a_group_whose_client_answered_waits_for_those_awake_only() -> None:
    async def story(scene: Scene) -> None:
        await scene.asked()
        awake = scene.rule.shares.awake
        others = awake.try_acquire(awake.limit)
        assert others is not None
        waiting = scene.waits_for_memory()
        await asyncio.sleep(0)
        assert scene.group.output.pings == 1
        assert awake.queue_size == 1
        assert scene.rule.share.queue_size == 0
        others.release()
        share = await settled(waiting)
        assert share is not None
        assert share.owner is awake

    run(story)


def test_a_list_that_had_no_turn_waits_with_no_more_heap_memory_than_others_may() -> None:
    async def story(scene: Scene) -> None:
        rule, group = scene.rule, scene.group
        group.unproven = False
        silent, awake = rule._crowd.with_one(LIMIT // UNPROVEN_HEAP_PART + 1), LIMIT // AWAKE_HEAP_PART + 1
        with silent, pytest.raises(AskAgain):
            await settled(scene.waits_for_memory())
        waiting = scene.waits_for_memory()
        await turns()
        assert rule.waiting == 1, "there is room for one that waits"
        assert group.output.answered is not None
        group.output.answered()
        with rule._awake_crowd.with_one(awake), pytest.raises(AskAgain):
            await settled(waiting)
        assert (rule.waiting, rule._crowd._waiting_bytes) == (0, 0)
        # Now the group has had a turn.
        group.unproven = True
        with rule._awake_crowd.with_one(awake):
            assert await settled(scene.waits_for_memory()) is not None

    run(story)


async def waits_behind(scene: Scene, heap_bytes: int) -> asyncio.Event:
    """Have a second list hold heap memory behind its client's first; return what ends that."""
    taken = asyncio.Event()

    async def until_taken() -> None:
        await taken.wait()

    second: Any = Group(behind=True)
    waiting = scene.rule.behind(second, heap_bytes, until_taken())
    scene.tasks.append(asyncio.get_running_loop().create_task(waiting))
    await asyncio.sleep(0)
    return taken


@pytest.mark.threat("two-unread-lists")
def test_second_lists_that_wait_for_their_own_clients_let_no_more_be_asked_for() -> None:
    async def story(scene: Scene) -> None:
        scene.free()
        taken = await waits_behind(scene, LIMIT // BEHIND_HEAP_PART + 1)
        scene.group.behind = True
        asking = asyncio.get_running_loop().create_task(scene.rule.may_ask(*scene.parts(scene.queue, SIZE)))
        await turns()
        assert not asking.done()
        assert scene.rule.waiting == 1
        taken.set()
        await asking

    run(story)


def test_first_lists_and_those_of_clients_that_answer_are_asked_for_all_the_same() -> None:
    async def story(scene: Scene) -> None:
        scene.free()
        taken = await waits_behind(scene, LIMIT // BEHIND_HEAP_PART + 1)
        await scene.rule.may_ask(*scene.parts(scene.queue, SIZE))
        assert scene.group.output.pings == 0
        scene.group.end_turn()
        scene.group.behind = True
        await scene.asked()
        assert scene.group.output.pings == 1
        taken.set()

    run(story)


def test_a_second_list_gives_its_turn_to_others_if_too_many_came_before_it() -> None:
    async def story(scene: Scene) -> None:
        scene.group.behind = True
        asking = asyncio.get_running_loop().create_task(scene.rule.may_ask(*scene.parts(scene.queue, SIZE)))
        await turns()
        taken = await waits_behind(scene, LIMIT // BEHIND_HEAP_PART + 1)
        scene.free()
        await turns()
        assert not asking.done()
        assert scene.queue.unproven.held == 0
        taken.set()
        await asking
        assert scene.queue.unproven.held > 0

    run(story)


@pytest.mark.threat("ping-answering-crowd")
def test_second_lists_that_are_out_keep_no_first_list_of_another_from_being_asked_for() -> None:
    async def story(scene: Scene) -> None:
        def asks(*, behind: bool) -> asyncio.Task[None]:
            scene.group = Group(behind=behind)
            return asyncio.get_running_loop().create_task(scene.asked())

        seconds = []
        for _ in range(LIMIT // SIZE):
            seconds.append(asks(behind=True))
            await turns()
        out = [each.done() for each in seconds]
        assert out == sorted(out, reverse=True), "in the order of coming"
        assert 0 < sum(out) <= LIMIT // AWAKE_BEHIND_HEAP_PART // SIZE + 1
        first = asks(behind=False)
        await settled(first)
        for each in seconds:
            each.cancel()

    run(story)


def test_a_second_list_of_a_client_that_is_awake_waits_for_its_turn_once() -> None:
    async def story(scene: Scene) -> None:
        rule = scene.rule
        other: Any = Group()
        rule._awake_behind_crowd._count(other, LIMIT)
        taken = await waits_behind(scene, LIMIT // BEHIND_HEAP_PART + 1)
        scene.group.behind = True
        asking = asyncio.get_running_loop().create_task(scene.asked())
        await turns()
        scene.clock.advance(2 * AWAKE_SECONDS)
        rule.question_over(other)
        await settled(asking)
        assert [*rule._awake_behind_crowd._asked.values()] == [SIZE]
        taken.set()

    run(story)


@pytest.mark.threat("ping-answering-crowd")
def test_who_answers_late_does_not_fill_the_part_that_lets_questions_of_those_awake_out() -> None:
    async def story(scene: Scene) -> None:
        rule = scene.rule
        awake = rule.shares.awake
        held = awake.try_acquire(awake.limit)
        assert held is not None
        late = scene.waits_for_memory()
        await turns()
        answered = scene.group.output.answered
        assert answered is not None
        others = rule._crowd.with_one(LIMIT // UNPROVEN_HEAP_PART)
        others.__enter__()
        next_one: Any = Group()
        asking = asyncio.get_running_loop().create_task(rule._crowd.passed(next_one, rule.shares))
        await turns()
        answered()
        await turns()
        assert awake.queue_size == 1
        assert not asking.done(), "the list is not forgotten between its two waits"
        asking.cancel()
        others.__exit__(None, None, None)
        assert (rule._crowd._waiting_bytes, rule._awake_crowd._waiting_bytes) == (SIZE, 0)
        held.release()
        assert await settled(late) is not None
        assert (rule._crowd._waiting_bytes, rule._awake_crowd._waiting_bytes) == (0, 0)

    run(story)


def test_a_list_of_a_client_awake_counts_with_its_turn_until_it_has_a_share() -> None:
    async def story(scene: Scene) -> None:
        rule, awake = scene.rule, scene.rule.shares.awake
        held = awake.try_acquire(awake.limit)
        assert held is not None
        for behind, crowd in ((False, rule._awake_crowd), (True, rule._awake_behind_crowd)):
            scene.group = Group(behind=behind)
            await scene.asked()
            waiting = scene.waits_for_memory()
            await turns()
            assert (crowd._asked_bytes, crowd._waiting_bytes) == (0, SIZE)
            waiting.cancel()
            await turns()
            assert crowd._waiting_bytes == 0

    run(story)


@pytest.mark.threat("ping-answering-crowd")
def test_a_first_list_that_waits_for_its_client_counts_with_second_lists_or_is_asked_for_again() -> None:
    async def story(scene: Scene) -> None:
        async def ready() -> None:
            await taken.wait()

        def waits() -> "asyncio.Task[None]":
            group: Any = scene.group
            return asyncio.get_running_loop().create_task(scene.rule.behind(group, SIZE, ready()))

        rule, taken = scene.rule, asyncio.Event()
        await scene.asked()
        overtaken = waits()
        await turns()
        assert (rule._awake_crowd._asked_bytes, rule._awake_behind_crowd._asked_bytes) == (0, SIZE)
        others: Any = Group()
        rule._awake_behind_crowd._count(others, LIMIT)
        scene.group = Group()
        await scene.asked()
        with pytest.raises(AskAgain):
            await waits()
        assert scene.group.behind
        assert rule._awake_crowd._asked_bytes == 0
        scene.group = Group()
        with rule._behind_crowd.with_one(LIMIT), pytest.raises(AskAgain):
            await waits()
        taken.set()
        await overtaken

    run(story)


@pytest.mark.threat("members-in-one-step")
async def test_members_of_a_large_group_are_asked_a_few_in_each_iteration() -> None:
    scene, looks = Scene(), list[int]()
    scene.free()

    class Asked(Reader):
        def has_room_for(self, size: int) -> bool:
            looks[-1] += 1
            return False

    recipients = [Group(output=Asked()) for _ in range(10 * MEMBERS_AT_ONCE)]
    waiting = asyncio.get_running_loop().create_task(scene.rule.share_for(*scene.parts(recipients, SIZE, SIZE)))
    while not waiting.done():
        looks.append(0)
        await asyncio.sleep(0)
    assert max(looks) == MEMBERS_AT_ONCE
    assert sum(looks) == len(recipients)
    share = await waiting
    assert share is not None
    share.release()
    recipients[-1].output = Reads()
    assert await scene.rule.share_for(*scene.parts(recipients, SIZE, SIZE)) is None


class Reads(Reader):
    reads = True
