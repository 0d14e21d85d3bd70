"""Clients that send large frames to a proxy's `LargeFrames`, without sockets and in virtual time."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from limiter.semaphore import AsyncSemaphore
from protocol.command_type import CommandType
from protocol.commands import frame as command_frame
from protocol.errors import ProtocolError, TooManyFields
from protocol.frames import Frame, varint
from protocol.framing import BodyEnd, FrameAnnounced, FrameDecoder, Signal
from protocol.pb import PulsarApi_pb2 as pb
from protocol.states import ConnectionState, Role, State
from proxy.clients.large_frames import UNBOOKED_FRAME_BYTES, LargeFrames
from proxy.clients.services import SHARE_PART
from proxy.clients.upload_watch import LOOK_SECONDS, UploadWatch
from proxy.core.counters import Counters
from proxy.core.errors import DisconnectCause
from proxy.core.log import open_log
from proxy.core.tasks import TaskScope
from proxy.net.transport import SMALL_READ_BYTES
from proxy.requests.client import Hold
from proxy.telemetry.refusals import RefusalLog
from tests.support.loops.clock import ManualClock, ManualTimer

LEAST_BYTES_PER_SECOND = 1000


def schema_frame_of(total_bytes: int) -> bytes:
    """Build a GET_OR_CREATE_SCHEMA frame of that size."""

    def built(data_bytes: int) -> bytes:
        schema = b"\x1a" + varint(data_bytes) + bytes(data_bytes)
        content = b"\x08\x07\x12\x01t\x1a" + varint(len(schema)) + schema
        kind = CommandType.GET_OR_CREATE_SCHEMA
        command = b"\x08" + varint(kind) + varint(kind << 3 | 2) + varint(len(content)) + content
        return (len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command

    payload = total_bytes - len(built(total_bytes)) + total_bytes
    frame = built(payload)
    # A length in fewer bytes: fill up behind the command, as a payload.
    missing = total_bytes - len(frame)
    assert 0 <= missing < 8
    return (total_bytes - 4).to_bytes(4, "big") + frame[4:] + bytes(missing)


def question_frame_of(total_bytes: int) -> bytes:
    """Build a GET_TOPICS_OF_NAMESPACE frame of about that size, by its pattern."""
    pattern = "x" * (total_bytes - 40)
    asked = pb.CommandGetTopicsOfNamespace(request_id=7, namespace="t/n", topics_pattern=pattern)
    return command_frame(pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=asked))


class Services:
    """What large frames need of a proxy: memories, clocks, the watch, books."""

    def __init__(self, limit: int, seconds: float = 28.0, timeout_seconds: float = 25.0) -> None:
        self.clock = ManualClock()
        self.direct = self._memory("direct", limit, timeout_seconds)
        self.frames = self._memory("direct for large frames", limit // SHARE_PART, timeout_seconds, share_by_key=True)
        self.handshakes = self._memory("handshake", limit, timeout_seconds, share_by_key=True)
        self.limits = SimpleNamespace(frame_seconds=seconds)
        self.authentication = None
        self.uploads = UploadWatch(lambda: LEAST_BYTES_PER_SECOND)
        self.requests = SimpleNamespace(counters=Counters(), refusals=RefusalLog(open_log("error"), self.clock))
        self.loop = self

    def _memory(self, name: str, limit: int, timeout_seconds: float, *, share_by_key: bool = False) -> AsyncSemaphore:
        return AsyncSemaphore(
            name,
            limit,
            max_queue=0,
            timeout_seconds=timeout_seconds,
            clock=self.clock,
            share_by_key=share_by_key,
        )

    def time(self) -> float:
        return self.clock.time()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> ManualTimer:
        return self.clock.call_at(self.clock.time() + seconds, callback)

    async def settle(self) -> None:
        """Let every task go as far as it can."""
        for _ in range(6):
            await asyncio.sleep(0)

    async def look(self, seconds: float) -> None:
        """Let a time pass, with the looks of the watch."""
        for _ in range(int(seconds / LOOK_SECONDS)):
            self.clock.advance(LOOK_SECONDS)
            await self.settle()
            await self.uploads.look(self.clock.time())
            await self.settle()


class Uploader:
    """A client that sends one large frame, as much of it and as fast as a test says; reads as a connection does."""

    def __init__(
        self, services: Services, frame: bytes, *, state: State = State.LOOKUP, address: str = "192.0.2.1"
    ) -> None:
        self.services = services
        self.frame = frame
        self.client_address = address
        self.name = f"{address}:{id(self)}"
        self.output = self
        self.sent: list[bytes] = []
        self.end: str | None = None
        self.handled = False
        self.put_off = False
        self._pending = bytearray()
        self._offered = 0
        self._state = ConnectionState(Role.CLIENT)
        for step in {State.LOOKUP: (State.CONNECTING, State.LOOKUP)}.get(state, ()):
            self._state.enter(step)
        self.scope = TaskScope(self.crashed)
        self.holds = Hold(0)
        self.decoder = FrameDecoder(announce_above=UNBOOKED_FRAME_BYTES)
        self.large = LargeFrames(cast(Any, self), cast(Any, services), self.decoder, self._state)

    # What the client does

    def offer(self, count: int) -> None:
        """Send up to `count` more bytes, of which the proxy reads what it has memory for."""
        self._pending += self.frame[self._offered : self._offered + count]
        self._offered = min(len(self.frame), self._offered + count)
        self._read()

    @property
    def unsent(self) -> int:
        return len(self.frame) - self._offered

    def leave(self) -> None:
        self._end("client_closed")

    @property
    def over(self) -> bool:
        """Return whether the frame has had its answer, or the connection has ended."""
        return self.end is not None or self.handled or bool(self.sent)

    # What its connection does

    def _read(self) -> None:
        while self._pending and not self.holds and self.end is None:
            place = self.large.readable() if self.decoder.storing else SMALL_READ_BYTES
            self.decoder.receive_data(bytes(self._pending[:place]))
            del self._pending[:place]
            self._process()

    def _process(self) -> None:
        try:
            while not self.holds and self.end is None:
                if self.decoder.storing and not self.large.covered():
                    return
                event = self.decoder.next_event()
                if isinstance(event, Signal):
                    return
                if isinstance(event, Frame):
                    assert self.large.permit is not None
                    assert self.large.permit.size >= 3 * len(self.frame)
                    self.handled = True
                    self.large.handled()
                elif isinstance(event, FrameAnnounced):
                    self.large.on_head(event.head)
                else:
                    assert isinstance(event, BodyEnd)
        except ProtocolError as error:
            self._end(f"protocol: {error}")

    def hold(self, reason: Hold) -> None:
        self.holds |= reason

    def unhold(self, reason: Hold) -> None:
        if self.holds & reason and self.end is None:
            self.holds &= ~reason
            self._process()
            self._read()

    def send(self, frame: bytes) -> None:
        self.sent.append(frame)

    def refuse(self, kind: int, request_id: int) -> None:
        raise AssertionError(f"refused {kind}")

    def refuse_fields(self, kind: int, command: bytes | bytearray, error: TooManyFields) -> None:
        self.sent.append(bytes(command))

    def close(self, cause: DisconnectCause) -> None:
        self._end(cause)

    def abort(self, cause: DisconnectCause) -> None:
        self._end(cause)

    def _end(self, end: str) -> None:
        if self.end is None:
            self.end = end
            self.scope.cancel()
            self.large.close()

    def crashed(self, error: BaseException) -> None:
        raise AssertionError("a task crashed") from error
