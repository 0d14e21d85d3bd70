"""Do what may block (a file on a disk that hangs) off the loop, and not for ever."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[[], T], name: str, seconds: float) -> T:
    """Call `function` in a thread of its own; raises what it raises, or TimeoutError and leaves it behind.

    Nobody waits for the thread: one of a pool would hold up the end of the process.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: Exception | None) -> None:
        if found.done():
            return
        if error is not None:
            found.set_exception(error)
        else:
            found.set_result(result)  # type: ignore[arg-type]

    def call() -> None:
        try:
            result: tuple[T | None, Exception | None] = (function(), None)
        except Exception as error:
            result = (None, error)
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, *result)

    threading.Thread(target=call, name=name, daemon=True).start()
    async with asyncio.timeout(seconds):
        return await found


def leave(code: int, thread_name: str) -> None:
    """End the process now if a thread whose name begins so is left behind; else return.

    A thread in the C++ of pulsar-client does not survive the interpreter's own end: Python ends it in the middle of a
    function that no exception may leave, and the whole process aborts.
    """
    if any(thread.name.startswith(thread_name) for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
