"""Calls that may block (a file on a hanging disk) off the event loop, with a time limit."""

import asyncio
import errno
import os
import sys
import threading
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")
# More hang than are at work: without a limit each look at a disk that hangs would leave one behind.
MOST_OF_A_NAME: Final = 64


# Names of the threads that write events begin with this; internal errors of the event log are counted under it.
EVENT_LOG: Final = "event log"


class NoThread(OSError):
    """A call did not run, because no thread could be started for it: RLIMIT_NPROC, pids.max, or no memory."""


async def in_thread(function: Callable[[], T], name: str, seconds: float | None, most: int = MOST_OF_A_NAME) -> T:
    """Call `function` in a thread of its own and raise its exception, or TimeoutError after `seconds` (None: never).

    Raise NoThread if no thread can be started, and TimeoutError at once if `most` of that name have not come back.

    Nothing waits for the thread after a timeout: a thread of a pool would delay the exit of the process.
    """
    if seconds is not None and sum(each.name == name for each in threading.enumerate()) >= most:
        raise TimeoutError(f"{most} threads ({name}) have not come back")
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

    start_thread(call, name)
    try:
        async with asyncio.timeout(seconds) as patience:
            return await found
    except TimeoutError as error:
        # A function may raise one, too.
        raise TimeoutError(f"no answer within {seconds:g} s") if patience.expired() else error from None


def start_thread(function: Callable[[], None], name: str) -> None:
    """Call `function`, which must not raise, in a thread that nobody waits for; raise NoThread if there is none."""
    try:
        threading.Thread(target=function, name=name, daemon=True).start()
    except RuntimeError as error:
        raise NoThread(errno.EAGAIN, "no thread can be started") from error


def leave(code: int, thread_name: str) -> None:
    """Exit the process at once if a thread whose name begins with `thread_name` still runs; else return.

    A thread in the C++ code of pulsar-client does not survive the end of the interpreter: Python unwinds the thread
    inside a noexcept function, and the process aborts.
    """
    if any(thread.name.startswith(thread_name) for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
