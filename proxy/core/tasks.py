"""The tasks of a connection: all end with the connection, and only its owner handles a crash of a task.

The only module that creates tasks. An `asyncio.TaskGroup` would need one more task per connection to hold the group
open, and most connections of a proxy are idle.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any


class TaskScope:
    """Starts tasks that are cancelled together; `on_crash` is called with any exception but a cancellation."""

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
        """Run `coroutine` until it ends or the scope is cancelled; a cancelled scope starts nothing.

        Return a callable that cancels only this task.

        `on_end` is called once in any case, also for a coroutine that never began, and must release everything that
        the coroutine was given to hold.
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
        """Wait until all tasks have ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[None], on_end: Callable[[], None] | None = None) -> None:
        self._tasks.discard(task)
        if on_end is not None:
            on_end()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(error)


def do_nothing() -> None:
    """Stand in for a callback that is not set."""


def stop_clock(clock: asyncio.Timeout) -> None:
    """Stop `clock`; a clock that has run out, whose task is about to hear of it, stays as it is."""
    if not clock.expired():
        clock.reschedule(None)
