"""Threads for calls that wait for a disk; they end with the process, even if the disk never answers."""

import asyncio
import errno
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from proxy.core.threads import NoThread

T = TypeVar("T")


class WorkerThreads:
    """Runs blocking calls in up to `count` threads, and hands their results to the event loop.

    Threads start when they are first needed. Daemons: a hung disk must not stop an exit.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int, name: str) -> None:
        self._loop = loop
        self._count = count
        self._name = name
        self._calls: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._outstanding = 0

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Return a future of the call's result or exception, NoThread if there is no thread and none can be started.

        The call runs even if nobody waits for the future.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        if len(self._threads) <= min(self._count - 1, self._outstanding):
            self._start_thread()
        if not self._threads:
            future.set_exception(NoThread(errno.EAGAIN, "no thread could be started for the disk"))
            return future
        self._outstanding += 1
        self._calls.put((future, call))
        return future

    def stop(self) -> None:
        """End the threads after the calls that were handed in; a second call does nothing."""
        for _ in self._threads:
            self._calls.put(None)
        self._threads.clear()

    def _start_thread(self) -> None:
        """Start one more thread; without it, the threads that run have to do."""
        thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The process may have no more threads (RLIMIT_NPROC, pids.max).
            return
        self._threads.append(thread)

    def _work(self) -> None:
        while (found := self._calls.get()) is not None:
            future, call = found
            result, error = None, None
            try:
                result = call()
            except BaseException as raised:
                error = raised
            try:
                self._loop.call_soon_threadsafe(self._done, future, result, error)
            except RuntimeError:
                # The loop is closed: the process ends.
                return
            # Nothing of a call stays alive while the thread waits for the next.
            del found, future, call, result, error

    def _done(self, future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
        self._outstanding -= 1
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
