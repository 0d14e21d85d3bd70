import asyncio
from functools import partial
from typing import Any

import pytest

from proxy.core.tasks import STEP_SECONDS, CoarseDeadlines, TaskClock, TaskScope, call_each
from tests.support.loops.loops import virtual


class Crashes(list[str]):
    def note(self, error: BaseException) -> None:
        self.append(repr(error))


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def crash() -> None:
    raise RuntimeError("crash")


async def settle() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


@virtual
async def test_what_a_task_holds_is_released_however_it_ends() -> None:
    crashes, released = Crashes(), []
    scope = TaskScope(crashes.note)

    async def done() -> None:
        return

    for name, work in (("done", done()), ("crashed", crash()), ("cancelled", forever())):
        scope.start(work, lambda name=name: released.append(name))  # type: ignore[misc]
    await settle()
    assert released == ["done", "crashed"]
    scope.start(forever(), lambda: released.append("never began"))
    scope.cancel()
    scope.start(forever(), lambda: released.append("too late"))
    await scope.emptied()
    assert sorted(released) == ["cancelled", "crashed", "done", "never began", "too late"]
    assert crashes == ["RuntimeError('crash')"]


# --- deadlines ------------------------------------------------------------------------------------


def clocks() -> CoarseDeadlines[TaskClock]:
    return CoarseDeadlines(asyncio.get_running_loop(), TaskClock.run_out)


@virtual
async def test_members_expire_in_the_order_of_their_deadlines_and_hardly_too_late() -> None:
    loop, expired = asyncio.get_running_loop(), list[tuple[str, float]]()
    deadlines = CoarseDeadlines[str](loop, lambda member: expired.append((member, loop.time())))
    began = loop.time()
    steps = {name: deadlines.add(name, began + after) for name, after in (("c", 9.0), ("a", 1.0), ("b", 1.01))}
    deadlines.add("gone", began + 1.0)
    deadlines.remove("gone", steps["a"])
    await asyncio.sleep(5)
    assert [name for name, _ in expired] == ["a", "b"]
    assert all(0 <= at - began - 1.0 <= STEP_SECONDS + 0.011 for _, at in expired)
    deadlines.remove("a", steps["a"])
    deadlines.add("d", began + 6.0)
    assert len(deadlines) == 2
    await asyncio.sleep(5)
    assert [name for name, _ in expired] == ["a", "b", "d", "c"]
    assert len(deadlines) == 0


@virtual
async def test_a_clock_ends_its_block_as_a_timeout_and_nothing_behind_it() -> None:
    deadlines, loop = clocks(), asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(TimeoutError), TaskClock(deadlines, began + 3):
        await asyncio.sleep(60)
    assert 3 <= loop.time() - began <= 3 + STEP_SECONDS + 1e-6
    with TaskClock(deadlines, loop.time() + 3):
        await asyncio.sleep(1)
    with TaskClock(deadlines, loop.time() + 3) as clock:
        clock.stop()
        await asyncio.sleep(60)
    await asyncio.sleep(60)
    task = asyncio.current_task()
    assert task is not None
    assert (task.cancelling(), len(deadlines)) == (0, 0)


@virtual
async def test_a_cancel_of_the_task_is_no_timeout() -> None:
    deadlines = clocks()

    async def work() -> None:
        with TaskClock(deadlines, asyncio.get_running_loop().time() + 3):
            await asyncio.sleep(60)

    task = asyncio.get_running_loop().create_task(work())
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # Cancelled in the moment in which the clock runs out, too: the task is over either way.
    task = asyncio.get_running_loop().create_task(work())
    asyncio.get_running_loop().call_later(3 + STEP_SECONDS / 2, task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(deadlines) == 0


@virtual
async def test_a_member_that_raises_keeps_none_of_the_others_from_expiring() -> None:
    loop, expired, lost = asyncio.get_running_loop(), list[int](), list[Any]()
    loop.set_exception_handler(lambda _, context: lost.append(context["exception"]))

    def expire(member: int) -> None:
        if member in (10, 20):
            raise ValueError(member)
        expired.append(member)

    deadlines = CoarseDeadlines[int](loop, expire)
    for number in range(100):
        deadlines.add(number, loop.time() + 1)
    await asyncio.sleep(2)
    assert expired == [number for number in range(100) if number not in (10, 20)]
    assert [error.args for error in lost] == [(10,), (20,)]


def test_each_is_called_although_one_raises() -> None:
    def fail() -> None:
        raise ValueError

    called, crashes = list[int](), list[BaseException]()
    call_each([partial(called.append, 1), fail, partial(called.append, 2)], crashes.append)
    assert (called, [type(error) for error in crashes]) == ([1, 2], [ValueError])
