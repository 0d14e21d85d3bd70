"""Lists of clients that have not shown that they read: who is asked for, who waits, and what a PING that is answered
changes. A list of unknown size counts as the average list."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

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
    FIRST_AVERAGE_BYTES,
    MEMBERS_AT_ONCE,
    UnprovenReaders,
)
from tests.support.clients.list_clients import turns
from tests.support.clients.reader_output import ReaderOutput
from tests.support.loops.clock import ManualClock

SIZE = 1024 * 1024
LIMIT = 16 * SIZE
LARGE = 4 * SIZE


@dataclass(eq=False)
class Group:
    """A group of one client, as `UnprovenReaders` sees it."""

    output: ReaderOutput = field(default_factory=ReaderOutput)
    left: bool = False
    turn: Permit | None = None
    awake_until: float = 0.0
    behind: bool = False
    unproven: bool = True
    share_key: str = "key"
    key_of_first: str = "key"
    share_ends_when_standing: bool = False

    @property
    def client(self) -> "Group":
        return self

    @property
    def members(self) -> list["Group"]:
        return [self]

    def try_acquire(self, memory: AsyncSemaphore, n: int, *, of_share: bool = False) -> Permit | None:
        return memory.try_acquire(n, key="key")

    async def acquire(self, memory: AsyncSemaphore, n: int, *, of_share: bool = False) -> Permit:
        return await memory.acquire(n, key="key")

    def stands_at(self, *_: object) -> None: ...

    def end_turn(self) -> None:
        if self.turn is not None:
            self.turn.release()
            self.turn = None


class Queue:
    """The questions to one broker, of which so many bytes may be out; 0: any number."""

    def __init__(self, clock: ManualClock, limit: int = 0) -> None:
        self.unproven = AsyncSemaphore("questions", limit, max_queue=100, timeout_seconds=10, clock=clock)


def taken(semaphore: AsyncSemaphore) -> Permit:
    """Have others hold all of it."""
    permit = semaphore.try_acquire(semaphore.limit)
    assert permit is not None
    return permit


def begin(work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    return asyncio.get_running_loop().create_task(work)


class Scene:
    """Memory of which silent clients hold all that they may, and a broker that they have asked for so much."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        limiter = AsyncDualMemoryLimiter(
            *(
                AsyncSemaphore(name, LIMIT, max_queue=100, timeout_seconds=10, clock=self.clock)
                for name in ("heap", "direct")
            )
        )
        self.rule: Any = UnprovenReaders(limiter, self.clock, 50)
        self.queue, self.idle_queue = Queue(self.clock, 1), Queue(self.clock)
        self._silent = [taken(self.queue.unproven), taken(self.rule.share)]
        self.awake: AsyncSemaphore = self.rule.shares.awake
        self.group = Group()
        self.tasks: list[asyncio.Task[Any]] = []

    def free(self) -> None:
        """End what silent clients hold."""
        for permit in self._silent:
            permit.release()

    def asks(self, group: Group | None = None, size: int | None = SIZE) -> "asyncio.Task[None]":
        return begin(self.rule.may_ask(group or self.group, self.queue, size))

    async def asks_awake(self, group: Group | None = None, size: int = SIZE) -> "asyncio.Task[None]":
        """Have a question wait, and its client answer a PING."""
        asking = self.asks(group, size)
        await self.pong(group)
        return asking

    def waits_for_memory(self, group: Group | None = None, heap_bytes: int = SIZE) -> "asyncio.Task[Permit | None]":
        """Have a list wait for its share."""
        group = group or self.group
        return begin(self.rule.share_for(group, [group], SIZE, heap_bytes))

    async def pong(self, group: Group | None = None) -> None:
        """Answer the PING that a group sends because of a wait."""
        await turns()
        output = (group or self.group).output
        assert output.callers
        output.pong()
        await turns()

    async def fills_part_of_those_awake(self) -> bool:
        """Have questions fill the part for those awake, and one pass it; return whether all went out."""
        asking = [await self.asks_awake(Group(), size) for size in (LIMIT // AWAKE_HEAP_PART, SIZE)]
        return all(each.done() for each in asking)

    async def waits_behind(self, heap_bytes: int, group: Group | None = None) -> asyncio.Event:
        """Have a list hold heap memory behind its client's first; return what ends that."""
        read = asyncio.Event()

        async def until_read() -> None:
            await read.wait()

        self.tasks.append(begin(self.rule.behind(group or Group(behind=True), heap_bytes, until_read())))
        await turns()
        return read


@pytest.fixture
async def scene() -> Scene:
    return Scene()


# --- PINGs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.0, AWAKE_SECONDS])
async def test_a_ping_answered_for_the_question_serves_the_memory_too_if_it_is_not_long_ago(
    scene: Scene, seconds: float
) -> None:
    await (await scene.asks_awake())
    scene.clock.advance(seconds)
    waiting = scene.waits_for_memory()
    if seconds:
        await scene.pong()
    share = await waiting
    assert share is not None
    assert share.owner is scene.awake
    assert scene.group.share_ends_when_standing
    assert scene.group.output.pings == (2 if seconds else 1)


async def test_a_group_whose_client_answered_waits_for_those_awake_only(scene: Scene) -> None:
    await (await scene.asks_awake())
    others = taken(scene.awake)
    waiting = scene.waits_for_memory()
    await turns()
    assert (scene.awake.queue_size, scene.rule.share.queue_size) == (1, 0)
    others.release()
    assert (await waiting) is not None
    assert scene.group.output.pings == 1


async def test_members_of_a_large_group_are_asked_a_few_in_each_iteration(scene: Scene) -> None:
    looks = list[int]()
    scene.free()

    class Asked(ReaderOutput):
        def has_room_for(self, size: int) -> bool:
            looks[-1] += 1
            return False

    recipients = [Group(output=Asked()) for _ in range(10 * MEMBERS_AT_ONCE)]
    waiting = begin(scene.rule.share_for(scene.group, recipients, SIZE, SIZE))
    while not waiting.done():
        looks.append(0)
        await asyncio.sleep(0)
    assert max(looks) == MEMBERS_AT_ONCE
    assert sum(looks) == len(recipients)
    (await waiting).release()
    recipients[-1].output = ReaderOutput(reads=True)
    assert await scene.rule.share_for(scene.group, recipients, SIZE, SIZE) is None


# --- lists that wait in heap memory ---------------------------------------------------------------


async def test_a_list_that_had_no_turn_waits_with_no_more_heap_memory_than_others_may(scene: Scene) -> None:
    scene.group.unproven = False
    silent = scene.waits_for_memory(Group(), LIMIT // UNPROVEN_HEAP_PART + 1)
    await turns()
    with pytest.raises(AskAgain):
        await scene.waits_for_memory()
    silent.cancel()
    await turns()
    others, awake = taken(scene.awake), Group(unproven=False)
    first, waiting = scene.waits_for_memory(awake, LIMIT // AWAKE_HEAP_PART + 1), scene.waits_for_memory()
    await scene.pong(awake)
    assert scene.rule.waiting == 2, "there is room for one that waits"
    await scene.pong()
    with pytest.raises(AskAgain):
        await waiting
    # Now the group has had a turn.
    scene.group.unproven = True
    waiting = scene.waits_for_memory()
    await turns()
    first.cancel()
    others.release()
    assert await waiting is not None
    assert scene.rule.waiting == 0


@pytest.mark.threat("ping-answering-crowd")
async def test_who_answers_late_does_not_fill_the_part_that_lets_questions_of_those_awake_out(scene: Scene) -> None:
    held = taken(scene.awake)
    late = scene.waits_for_memory()
    others = scene.waits_for_memory(Group(), LIMIT // UNPROVEN_HEAP_PART)
    await turns()
    asking = begin(scene.rule.may_ask(Group(), scene.idle_queue, SIZE))
    await scene.pong()
    assert scene.awake.queue_size == 1
    assert not asking.done(), "the list is not forgotten between its two waits"
    assert await scene.fills_part_of_those_awake()
    others.cancel()
    await asking
    held.release()
    assert await late is not None


@pytest.mark.parametrize(("behind", "part"), [(False, AWAKE_HEAP_PART), (True, AWAKE_BEHIND_HEAP_PART)])
async def test_a_list_of_a_client_awake_counts_with_its_turn_until_it_has_a_share(
    scene: Scene, behind: bool, part: int
) -> None:
    taken(scene.awake)
    scene.group.behind = behind
    await (await scene.asks_awake())
    waiting = scene.waits_for_memory(heap_bytes=LIMIT // part)
    await turns()
    # The question counts no more, and the list does: the next passes the part, and those behind it wait.
    assert (await scene.asks_awake(Group(behind=behind))).done()
    last = await scene.asks_awake(Group(behind=behind))
    assert not last.done()
    waiting.cancel()
    await last


# --- second lists ---------------------------------------------------------------------------------


@pytest.mark.threat("two-unread-lists")
async def test_second_lists_that_wait_for_their_own_clients_let_no_more_be_asked_for(scene: Scene) -> None:
    scene.free()
    read = await scene.waits_behind(LIMIT // BEHIND_HEAP_PART + 1)
    scene.group.behind = True
    asking = scene.asks()
    await turns()
    assert (asking.done(), scene.rule.waiting) == (False, 1)
    read.set()
    await asking


async def test_first_lists_and_those_of_clients_that_answer_are_asked_for_all_the_same(scene: Scene) -> None:
    scene.free()
    await scene.waits_behind(LIMIT // BEHIND_HEAP_PART + 1)
    await scene.asks()
    assert scene.group.output.pings == 0
    scene.group.end_turn()
    scene.group.behind = True
    await (await scene.asks_awake())


async def test_a_second_list_gives_its_turn_to_others_if_too_many_came_before_it(scene: Scene) -> None:
    scene.group.behind = True
    asking = scene.asks()
    await turns()
    read = await scene.waits_behind(LIMIT // BEHIND_HEAP_PART + 1)
    scene.free()
    await turns()
    assert (asking.done(), scene.queue.unproven.held) == (False, 0)
    read.set()
    await asking
    assert scene.queue.unproven.held > 0


@pytest.mark.threat("ping-answering-crowd")
async def test_second_lists_that_are_out_keep_no_first_list_of_another_from_being_asked_for(scene: Scene) -> None:
    seconds = [await scene.asks_awake(Group(behind=True)) for _ in range(LIMIT // SIZE)]
    out = [each.done() for each in seconds]
    assert out == sorted(out, reverse=True), "in the order of coming"
    assert 0 < sum(out) <= LIMIT // AWAKE_BEHIND_HEAP_PART // SIZE + 1
    await (await scene.asks_awake())


@pytest.mark.threat("ping-answering-crowd")
async def test_a_first_list_that_waits_for_its_client_counts_with_second_lists_or_is_asked_for_again(
    scene: Scene,
) -> None:
    full = LIMIT // AWAKE_HEAP_PART
    await (await scene.asks_awake(size=full))
    await scene.waits_behind(SIZE, scene.group)
    # Now it is second lists that fill their part.
    overtaken = Group()
    await (await scene.asks_awake(overtaken, full))
    await scene.waits_behind(SIZE, overtaken)
    with pytest.raises(AskAgain):
        await scene.tasks[-1]
    assert overtaken.behind
    assert await scene.fills_part_of_those_awake()
    await scene.waits_behind(LIMIT)
    await scene.waits_behind(SIZE, Group())
    with pytest.raises(AskAgain):
        await scene.tasks[-1]
    assert not scene.tasks[0].done()


# --- the average list -----------------------------------------------------------------------------


async def average(scene: Scene) -> int:
    """Return what a list of unknown size counts as."""
    group = Group()
    await scene.rule.may_ask(group, scene.idle_queue, None)
    assert group.turn is not None
    size = group.turn.size
    group.end_turn()
    return size


def learn(scene: Scene, *sizes: int) -> None:
    for size in sizes:
        scene.rule.learn(size, known=False, chosen=False)


@pytest.mark.threat("tiny-namespace-lists")
async def test_lists_of_tiny_namespaces_do_not_make_the_average_small(scene: Scene) -> None:
    learn(scene, *[0] * 100_000)
    assert await average(scene) > FIRST_AVERAGE_BYTES // 2
    learn(scene, *[LARGE] * 20)
    assert await average(scene) > LARGE * 3 // 4, "large lists are soon the average"
    learn(scene, *[100] * 100_000)
    assert await average(scene) > LARGE * 3 // 4


@pytest.mark.threat("tiny-namespace-lists")
async def test_smaller_lists_make_it_smaller_slowly_and_a_larger_one_counts_at_once(scene: Scene) -> None:
    learn(scene, *[LARGE] * 20)
    for _ in range(3):
        before = await average(scene)
        learn(scene, *[LARGE // 2] * 1000)
        assert before * 3 // 4 < await average(scene) < before, "an eighth in ten seconds"
        scene.clock.advance(10)
    before = await average(scene)
    learn(scene, LARGE)
    assert await average(scene) > before
