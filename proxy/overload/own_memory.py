"""This process's view of memory: what the machine says, read in a thread, and whose bytes the proxy holds."""

from collections.abc import Callable
from typing import Final, TypeVar

from proxy.core.threads import NoThread, in_thread
from proxy.overload.machine_memory import MachineMemory
from proxy.overload.samples import MemorySample, OwnerBytes

T = TypeVar("T")

READ_SECONDS: Final = 2.0


class OneAtATime:
    """Calls in a thread, one at a time: files of the kernel that never answer take no thread for each sample.

    Such a file may have another in its place by now, so the next call is made after a while, each time twice as long.
    """

    __slots__ = ("_began", "_clock", "_running")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._running = 0
        self._began = 0.0

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function in a thread; raise TimeoutError if it takes too long, or if the last call still does."""
        now = self._clock()
        if self._running and now - self._began < READ_SECONDS * 2**self._running:
            raise TimeoutError("the last look at memory has not ended")
        self._running += 1
        self._began = now

        def call() -> T:
            try:
                return function()
            finally:
                self._running -= 1

        try:
            return await in_thread(call, "overload", READ_SECONDS)
        except NoThread:
            self._running -= 1
            raise
        except TimeoutError:
            raise TimeoutError(f"no answer within {READ_SECONDS:g} s") from None


class OwnMemory:
    """The memory of machine and container, and `owners`, whose bytes are counted on the loop."""

    def __init__(self, machine: MachineMemory, owners: Callable[[], OwnerBytes], clock: Callable[[], float]) -> None:
        self.owners = owners
        self._machine = machine
        self._threads = OneAtATime(clock)

    async def read(self) -> MemorySample:
        """Return how much is in use; raises OSError, TimeoutError."""
        return await self._threads.call(self._machine.read)

    async def trim(self) -> None:
        """Return free memory to the system."""
        await self._threads.call(self._machine.trim)
