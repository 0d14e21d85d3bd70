"""Questions that wait because lists hold their part of heap memory: in turns by network, and each counts."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from limiter.semaphore import AsyncSemaphore
from limiter.sites import SiteKey
from proxy.requests.topic_lists.heap_crowds import HeapCrowd
from tests.support.loops.clock import ManualClock
from tests.support.loops.loops import run_virtual

PART = 8
SIZE = 1000
# Room for two lists, and one that passes the part.
LIMIT = 2 * SIZE * PART


@dataclass(eq=False)
class Group:
    share_key: str
    unproven: bool = True


@dataclass
class Shares:
    in_force: bool = True


class Scene:
    def __init__(self) -> None:
        heap = AsyncSemaphore("heap", LIMIT, max_queue=0, timeout_seconds=1, clock=ManualClock())
        self.crowd = HeapCrowd(heap, PART)
        self.out: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.groups: dict[str, Any] = {}

    async def ask(self, *names: str, key: str = "a") -> None:
        for name in names:
            self.groups[name] = Group(key)
            self.tasks[name] = asyncio.get_running_loop().create_task(self._ask(name))
        await asyncio.sleep(0)

    async def _ask(self, name: str) -> None:
        shares: Any = Shares()
        await self.crowd.passed(self.groups[name], shares, SIZE)
        self.out.append(name)

    async def arrived(self, *names: str) -> None:
        for name in names:
            self.crowd.arrived(self.groups[name])
            await asyncio.sleep(0)
            await asyncio.sleep(0)


@pytest.mark.threat("ping-answering-crowd")
def test_a_question_that_is_out_counts_until_its_list_is_there() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.ask(*"pqrst")
        assert (scene.out, scene.crowd.asking) == ([*"pqr"], 2)
        await scene.arrived("p")
        assert (scene.out, scene.crowd.asking) == ([*"pqrs"], 1)
        await scene.arrived("p")
        assert scene.crowd.asking == 1, "a question ends once"
        await scene.arrived(*"qr")
        assert (scene.out, scene.crowd.asking) == ([*"pqrst"], 0)

    run_virtual(main())


@pytest.mark.threat("ping-answering-crowd")
def test_a_question_of_another_network_goes_before_the_line_of_the_first() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.ask(*"pqrstuv")
        await scene.ask("x", "y", key=SiteKey("2001:db8:0:1::/64", "2001:db8::/48"))
        await scene.ask("z", key=SiteKey("2001:db8:0:2::/64", "2001:db8::/48"))
        await scene.arrived(*"pqrst")
        assert scene.out == ["p", "q", "r", "s", "x", "t", "y", "u"]

    run_virtual(main())


def test_a_question_that_leaves_counts_no_more_and_wakes_the_next() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.ask(*"pqrstu")
        scene.tasks["s"].cancel()
        await asyncio.sleep(0)
        assert scene.crowd.asking == 2
        # This one leaves in the moment in which its turn comes.
        scene.crowd.arrived(scene.groups["p"])
        scene.tasks["t"].cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (scene.out, scene.crowd.asking) == ([*"pqru"], 0)
        await scene.arrived(*"qru")
        assert not scene.crowd.full

    run_virtual(main())


def test_all_go_out_where_there_is_no_rule_any_more() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.ask(*"pqrstu")
        scene.crowd.let_ask(all_of_them=True)
        await asyncio.sleep(0)
        assert scene.out == [*"pqrstu"]

    run_virtual(main())


def test_memory_is_short_only_for_questions_that_wait_behind_lists() -> None:
    """A storm of quick readers, whose questions wait for one another, is no reason to move lists to disk."""

    async def main() -> None:
        scene = Scene()
        await scene.ask(*"pqrst")
        assert (scene.crowd.asking, scene.crowd.short) == (2, False)
        with scene.crowd.with_one(3 * SIZE):
            assert scene.crowd.short
        await scene.arrived(*"pqrst")
        assert not scene.crowd.short

    run_virtual(main())
