"""A connection of the embedded broker: handshake, then requests, an echo or a flood.

Rule: answers are written one at a time, and a piece only after the previous piece has left, so that a client that does
not read costs the memory of two pieces. If 1,000 requests wait, the connection stops reading.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final, cast

from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import ProtocolError
from protocol.frames import Frame
from protocol.framing import FrameDecoder
from protocol.pb import PulsarApi_pb2 as pb
from proxy.core.tasks import TaskScope, do_nothing
from tests.support.brokers.embedded.answers import MAX_MESSAGE_BYTES, Answers
from tests.support.brokers.embedded.record import Record
from tests.support.brokers.embedded.script import AfterHandshake
from tests.support.brokers.embedded.topics import DeadlyRequest
from tests.support.brokers.embedded.watchers import Watchers

MOST_WAITING: Final = 1000
_READ_BYTES: Final = 64 * 1024
_FRAME_OVERHEAD_BYTES: Final = 10 * 1024


class Session:
    """Serves a connection until it ends; `scope` holds the tasks of this connection only."""

    def __init__(
        self,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        answers: Answers,
        record: Record,
        scope: TaskScope,
    ) -> None:
        self._reader, self._writer = streams
        # The loops' own TLS transports treat 0 as "always full".
        with_tls = self._writer.get_extra_info("ssl_object") is not None
        self._writer.transport.set_write_buffer_limits(high=int(with_tls), low=0)
        self._answers = answers
        self._script = answers.script
        self._record = record
        self._scope = scope
        self._decoder = FrameDecoder(max_frame_bytes=MAX_MESSAGE_BYTES + _FRAME_OVERHEAD_BYTES)
        self._writing = asyncio.Lock()
        self._places = asyncio.Semaphore(MOST_WAITING)
        self._cut = False
        self.watchers = Watchers(answers.store)
        self.connect: pb.CommandConnect | None = None

    def abort(self) -> None:
        """Cut the connection and discard unsent bytes."""
        self._writer.transport.abort()

    @property
    def unsent_bytes(self) -> int:
        """The number of unsent bytes in user space."""
        return self._writer.transport.get_write_buffer_size()

    async def send(self, frame: bytes) -> None:
        """Send a frame that answers no request, between two answers."""
        await self._write((frame,))

    async def send_updates(self, new: Iterable[str], deleted: Iterable[str]) -> None:
        """Send updates to this connection's watchers about created and deleted topics."""
        try:
            for frame in list(self.watchers.updates(new, deleted)):
                await self.send(frame)
        except ConnectionError:
            self.abort()

    async def run(self) -> None:
        """Serve until the client leaves; invalid bytes and connection errors raise nothing here."""
        try:
            await self._serve()
        except (ConnectionError, ProtocolError):
            self.abort()
        finally:
            self._scope.cancel()
            self._writer.close()
            await self._scope.emptied()

    async def _serve(self) -> None:
        """Serve commands; an echo or a flood requires a client that waits for CONNECTED before it sends more."""
        while data := await self._reader.read(_READ_BYTES):
            self._record.received_bytes += len(data)
            self._decoder.receive_data(data)
            if not await self._take_frames():
                return
            if self.connect is not None and self._script.after_handshake is AfterHandshake.ECHO:
                await self._echo()
            elif self.connect is not None and self._script.after_handshake is AfterHandshake.FLOOD:
                self._scope.start(self._flood())
                await self._discard()

    async def _take_frames(self) -> bool:
        """Start an answer for each complete command; return False to end the connection."""
        while isinstance(event := self._decoder.next_event(), Frame):
            command = commands.decode_command(event.command)
            self._record.command(command, event.head.frame_bytes)
            if (command.type == CommandType.CONNECT) is not (self.connect is None):
                return False
            if self.connect is not None:
                await self._places.acquire()
                self._scope.start(self._answer(command))
            elif not await self._handshake(command.connect):
                return False
        return True

    async def _handshake(self, connect: pb.CommandConnect) -> bool:
        refusal = self._script.refuse_connect
        if refusal is not None:
            await self._write((commands.error(commands.REQUEST_ID_NONE, refusal.code, refusal.message),))
            return False
        self.connect = connect
        if CommandType.CONNECT not in self._script.silent:
            await self._pass_gate(CommandType.CONNECT)
            await self._write((self._answers.connected(connect),), CommandType.CONNECT)
        return True

    async def _answer(self, command: pb.BaseCommand) -> None:
        kind = cast(CommandType, command.type)
        listing = kind == CommandType.GET_TOPICS_OF_NAMESPACE
        over = self._record.question_opened() if listing else do_nothing
        try:
            if kind not in self._script.silent:
                await self._pass_gate(kind)
                await self._write(self._answers.answer(command, self.watchers), kind, over)
        except (ConnectionError, DeadlyRequest):
            self.abort()
        finally:
            self._places.release()
            over()

    async def _pass_gate(self, kind: CommandType) -> None:
        gate = self._script.gates.get(kind)
        if gate is not None:
            await gate.wait()

    async def _write(
        self, pieces: Iterable[bytes], kind: CommandType | None = None, before_last: Callable[[], None] = do_nothing
    ) -> None:
        async with self._writing:
            room = None if kind is None else self._script.cut_mid_frame.get(kind)
            for piece, last in _with_last(pieces):
                if self._cut:
                    return
                if last:
                    # A reader that has the whole answer may ask again before this task goes on.
                    before_last()
                if room is not None and len(piece) > room:
                    await self._send(piece[:room])
                    self._cut = True
                    self._check_open()
                    self._writer.write_eof()
                    return
                if room is not None:
                    room -= len(piece)
                await self._send(piece)

    async def _send(self, piece: bytes) -> None:
        self._check_open()
        self._writer.write(piece)
        await self._writer.drain()
        self._record.sent_bytes += len(piece)

    def _check_open(self) -> None:
        # uvloop raises RuntimeError for a write in the turn between the loss of a connection and the end of its reads.
        if self._writer.transport.is_closing():
            raise ConnectionResetError

    async def _echo(self) -> None:
        while data := await self._reader.read(_READ_BYTES):
            self._record.received_bytes += len(data)
            await self._send(data)

    async def _discard(self) -> None:
        while data := await self._reader.read(_READ_BYTES):
            self._record.received_bytes += len(data)

    async def _flood(self) -> None:
        message = message_frame(self._script.flood_payload_bytes)
        try:
            while True:
                await self._send(message)
        except ConnectionError:
            self.abort()


def _with_last(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield each piece, and whether it is the last."""
    before: bytes | None = None
    for piece in pieces:
        if before is not None:
            yield before, False
        before = piece
    if before is not None:
        yield before, True


def message_frame(payload_bytes: int) -> bytes:
    """Return a frame with a MESSAGE command and a payload of `payload_bytes`."""
    command = pb.BaseCommand(type=pb.BaseCommand.MESSAGE)
    command.message.consumer_id = 1
    command.message.message_id.ledgerId = 1
    command.message.message_id.entryId = 1
    framed = commands.frame(command)
    return (len(framed) - 4 + payload_bytes).to_bytes(4, "big") + framed[4:] + bytes(payload_bytes)
