"""Own the tasks of one connection: all end with it, and a crash of one is its owner's business alone.

The only place that creates tasks. An `asyncio.TaskGroup` would need one more task per idle connection just to hold
the group open; thousands of idle connections are what a proxy has most of.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any


class TaskScope:
    """Start tasks that are cancelled together; `on_crash` hears of any exception that is not a cancellation."""

    __slots__ = ("_closed", "_on_crash", "_tasks")

    def __init__(self, on_crash: Callable[[BaseException], None]) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_crash = on_crash
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def start(
        self, coroutine: Coroutine[Any, Any, None], on_end: Callable[[], None] | None = None
    ) -> Callable[[], object]:
        """Run `coroutine` until it ends or the scope is cancelled; a cancelled scope starts nothing any more.

        Returns what cancels this one alone.

        `on_end` is called in any case, once, also for a coroutine that never began: what it was given to hold must be
        released there.
        """
        if self._closed:
            coroutine.close()
            if on_end is not None:
                on_end()
            return do_nothing
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended if on_end is None else partial(self._ended, on_end=on_end))
        return task.cancel

    def cancel(self) -> None:
        """Cancel every task and refuse new ones."""
        self._closed = True
        for task in self._tasks:
            task.cancel()

    async def emptied(self) -> None:
        """Wait until no task is left."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[None], on_end: Callable[[], None] | None = None) -> None:
        self._tasks.discard(task)
        if on_end is not None:
            on_end()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(error)


def do_nothing() -> None:
    """Stand for a callback that nobody waits for."""
