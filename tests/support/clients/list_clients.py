"""Own a client as the topic-list path sees it: an endpoint with an output, and tasks that end with it.

Rule: wired as a client connection wires itself, and nothing else; what it was told is cut by hand out of what it took.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from limiter.semaphore import AsyncSemaphore
from protocol.commands import decode_command
from protocol.pb import PulsarApi_pb2 as pb
from proxy.core.errors import DisconnectCause
from proxy.core.tasks import TaskScope
from proxy.net.hangup import HangupWatcher
from proxy.net.output import Output
from proxy.net.transport import SharedReadBuffer
from proxy.net.write_watch import WriteWatch
from proxy.requests.client import Client
from tests.support.cores import core_of
from tests.support.sockets.memory_transport import MemoryTransport

EVERYTHING = 1 << 40


class ListClient(Client):
    """A requester (`proxy.requests.client`) over a transport in memory, which takes `room` bytes before it stalls."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        hangup: HangupWatcher,
        direct: AsyncSemaphore,
        name: str = "client",
        principal: Hashable = None,
        room: int = EVERYTHING,
        max_frame_bytes: int = EVERYTHING,
    ) -> None:
        core = core_of(loop=loop)
        super().__init__(loop, SharedReadBuffer(), hangup, core.loop_budget, "192.0.2.1")
        self.name = name
        self.principal = principal
        self.max_frame_bytes = max_frame_bytes
        watch = WriteWatch(core, direct, direct, lambda: 0, lambda: (None, None, False), None)
        self.output = Output(self, direct, watch)
        self.crashes: list[BaseException] = []
        self.socket = MemoryTransport(loop, room)
        self._scope = TaskScope(self.crashes.append)
        self.socket.connect(self)

    def start(self, work: Coroutine[Any, Any, None], on_end: Callable[[], None] | None = None) -> Callable[[], object]:
        """Run `work` as long as the client is there."""
        return self._scope.start(work, on_end)

    def leave(self) -> None:
        """Go at once; nothing more is read."""
        self.abort(DisconnectCause.CLIENT_CLOSED)

    def read(self, count: int = EVERYTHING) -> None:
        """Take so many bytes more."""
        self.socket.take(count)

    def commands(self) -> list[pb.BaseCommand]:
        """Decode the whole frames taken so far."""
        return commands_in(bytes(self.socket.peer_bytes))[0]

    # --- proxy.transport.Endpoint -----------------------------------------------------------------

    def resume_writing(self) -> None:
        super().resume_writing()
        self.output.drained()

    def output_full(self) -> None:
        self.pause_reading()

    def output_settled(self) -> None:
        self.resume_reading()

    def lost(self, cause: DisconnectCause) -> None:
        self._scope.cancel()
        self.output.close()


def commands_in(data: bytes) -> tuple[list[pb.BaseCommand], int]:
    """Decode the whole frames at the beginning of `data`, and tell where they end."""
    commands, at = [], 0
    while len(data) >= at + 8:
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            break
        commands.append(decode_command(data[at + 8 : end]))
        at = end
    return commands, at


async def turns(count: int = 6) -> None:
    """Let the loop run so many turns."""
    for _ in range(count):
        await asyncio.sleep(0)
