import asyncio

from proxy.core.tasks import TaskScope
from tests.support.loops.loops import run_virtual


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


def test_tasks_run_and_leave_the_scope_when_they_end() -> None:
    async def main() -> None:
        crashes, done = Crashes(), []

        async def work(number: int) -> None:
            await asyncio.sleep(number)
            done.append(number)

        scope = TaskScope(crashes.note)
        scope.start(work(1))
        scope.start(work(2))
        assert len(scope) == 2
        await scope.emptied()
        assert (done, len(scope), crashes) == ([1, 2], 0, [])

    run_virtual(main())


def test_a_crash_is_reported_and_ends_nobody_else() -> None:
    async def main() -> None:
        crashes = Crashes()
        scope = TaskScope(crashes.note)
        scope.start(forever())
        scope.start(crash())
        await settle()
        assert crashes == ["RuntimeError('crash')"]
        assert len(scope) == 1
        scope.cancel()
        await scope.emptied()

    run_virtual(main())


def test_cancel_ends_all_and_is_no_crash() -> None:
    async def main() -> None:
        crashes, undone = Crashes(), []

        async def held(number: int) -> None:
            try:
                await forever()
            finally:
                undone.append(number)

        scope = TaskScope(crashes.note)
        for number in range(3):
            scope.start(held(number))
        await settle()
        scope.cancel()
        await scope.emptied()
        assert sorted(undone) == [0, 1, 2]
        assert crashes == []

    run_virtual(main())


def test_a_crash_during_the_cancellation_is_reported() -> None:
    async def main() -> None:
        crashes = Crashes()

        async def careless() -> None:
            try:
                await forever()
            finally:
                raise RuntimeError("while leaving")

        scope = TaskScope(crashes.note)
        scope.start(careless())
        await settle()
        scope.cancel()
        await scope.emptied()
        assert crashes == ["RuntimeError('while leaving')"]

    run_virtual(main())


def test_a_cancelled_scope_starts_nothing() -> None:
    async def main() -> None:
        ran: list[str] = []

        async def late() -> None:
            ran.append("late")

        scope = TaskScope(Crashes().note)
        scope.cancel()
        scope.start(late())
        await settle()
        assert ran == []
        assert len(scope) == 0

    run_virtual(main())


def test_a_task_may_start_another() -> None:
    async def main() -> None:
        done: list[str] = []
        scope = TaskScope(Crashes().note)

        async def child() -> None:
            await asyncio.sleep(5)
            done.append("child")

        async def parent() -> None:
            scope.start(child())

        scope.start(parent())
        await scope.emptied()
        assert done == ["child"]

    run_virtual(main())


def test_an_empty_scope_is_empty_at_once() -> None:
    async def main() -> None:
        await TaskScope(Crashes().note).emptied()

    run_virtual(main())


def test_what_a_task_holds_is_released_however_it_ends() -> None:
    async def main() -> None:
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

    run_virtual(main())
