"""Owns many clients on one event loop that ask for topic lists at once and check every byte of every answer.

Obeys one rule: an answer is never stored. Its bytes go through one shared buffer into a checksum, so that the memory
seen in a storm is the proxy's. What the lists should be is the caller's business. Knows no proxy.
"""

import asyncio
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from protocol.commands import PONG_FRAME, decode_command, frame
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.wire import PROTOCOL_VERSION

_READ_BYTES: Final = 1 << 18
_HEAD_BYTES: Final = 4096  # of each frame: all of an error or a PING, and what identifies a long list
_LISTED: Final = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE

List = tuple[int, int]


@dataclass(slots=True)
class Outcome:
    """What became of the requests: each list as (bytes behind the request id, their CRC-32), errors by code."""

    lists: Counter[List] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    largest_frame_bytes: int = 0
    frame_bytes: int = 0  # of all lists
    seconds: float = 0.0

    @property
    def answered(self) -> int:
        """Count the lists that came whole."""
        return self.lists.total()


def request(namespace: str, pattern: str | None = None, marker: str = "") -> pb.CommandGetTopicsOfNamespace:
    """Make a request without an id; requests with different markers ask for the same, but are not equal."""
    asked = pb.CommandGetTopicsOfNamespace(request_id=0, namespace=namespace, topics_pattern=pattern)
    if marker:
        asked.properties.add(key="marker", value=marker)
    return asked


async def storm(
    address: tuple[str, int],
    requests: Sequence[pb.CommandGetTopicsOfNamespace],
    connections: int,
    window: int,
    started: Callable[[], None] = lambda: None,
    ended: Callable[[Outcome], None] = lambda _: None,
) -> Outcome:
    """Spread `requests` over `connections`, each with at most `window` outstanding; all begin at once.

    `started` is called when all have begun, `ended` in a thread when every request has an answer or has lost its
    connection; connections close when it returns.
    """
    loop, outcome, buffer = asyncio.get_running_loop(), Outcome(), memoryview(bytearray(_READ_BYTES))
    clients = [_Client(requests[first::connections], window, buffer, outcome) for first in range(connections)]
    try:
        for client in clients:
            await loop.create_connection(lambda client=client: client, *address)  # type: ignore[misc]
        await asyncio.gather(*(client.connected for client in clients))
        begun = loop.time()
        for client in clients:
            client.begin()
        started()
        await asyncio.gather(*(client.done for client in clients))
        outcome.seconds = loop.time() - begun
        await asyncio.to_thread(ended, outcome)
    finally:
        for client in clients:
            client.close()
    return outcome


class _Client(asyncio.BufferedProtocol):
    """One connection: CONNECT, then its requests; PINGs are answered."""

    def __init__(
        self,
        requests: Sequence[pb.CommandGetTopicsOfNamespace],
        window: int,
        buffer: memoryview,
        outcome: Outcome,
    ) -> None:
        self._waiting = list(enumerate(requests, start=1))[::-1]
        self._window = window
        self._buffer = buffer
        self._outcome = outcome
        self._frames = _FrameReader(self._command, self._list)
        self._asked: set[int] = set()
        self._transport: asyncio.Transport | None = None
        loop = asyncio.get_running_loop()
        self.connected: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connect = pb.CommandConnect(client_version="storm", protocol_version=PROTOCOL_VERSION)
        self._send(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=connect))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.feed(self._buffer[:nbytes])

    def connection_lost(self, exc: Exception | None) -> None:
        self._outcome.lost += len(self._asked) + len(self._waiting)
        for future in (self.connected, self.done):
            if not future.done():
                future.set_result(None)

    # Requests and answers

    def begin(self) -> None:
        while self._waiting and len(self._asked) < self._window:
            request_id, asked = self._waiting.pop()
            asked.request_id = request_id
            self._asked.add(request_id)
            self._send(pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=asked))
        if not self._asked and not self.done.done():
            self.done.set_result(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _send(self, command: pb.BaseCommand) -> None:
        assert self._transport is not None
        self._transport.write(frame(command))

    def _command(self, command: pb.BaseCommand) -> None:
        if command.type == pb.BaseCommand.CONNECTED:
            self.connected.set_result(None)
        elif command.type == pb.BaseCommand.PING:
            assert self._transport is not None
            self._transport.write(PONG_FRAME)
        else:
            assert command.type == pb.BaseCommand.ERROR, f"expected an answer, got {command}"
            self._outcome.errors[f"{ServerError(command.error.error).name}: {command.error.message}"] += 1
            self._answered(command.error.request_id)

    def _list(self, request_id: int, frame_bytes: int, answer: List) -> None:
        self._outcome.lists[answer] += 1
        self._outcome.frame_bytes += frame_bytes
        self._outcome.largest_frame_bytes = max(self._outcome.largest_frame_bytes, frame_bytes)
        self._answered(request_id)

    def _answered(self, request_id: int) -> None:
        # A second answer to a request, or one that nobody asked for, is a KeyError and ends the test.
        self._asked.remove(request_id)
        self.begin()


class _FrameReader:
    """Cut bytes into frames, keeping the head of each; topic lists go to `listed`, all else to `command`."""

    def __init__(self, command: Callable[[pb.BaseCommand], None], listed: Callable[[int, int, List], None]) -> None:
        self._command_came = command
        self._list_came = listed
        self._head = bytearray()
        self._left = 0
        self._list = (0, 0, 0)

    def feed(self, data: memoryview) -> None:
        while data:
            data = self._pass(data) if self._left else self._fill_head(data)

    def _fill_head(self, data: memoryview) -> memoryview:
        head = self._head
        size = int.from_bytes(head[:4], "big") if len(head) >= 4 else 0
        taken = min((min(4 + size, _HEAD_BYTES) if size else 4) - len(head), len(data))
        head += data[:taken]
        if size and len(head) == min(4 + size, _HEAD_BYTES):
            self._head_filled(4 + size)
        return data[taken:]

    def _head_filled(self, frame_bytes: int) -> None:
        head, self._head = self._head, bytearray()
        command_type, position = _varint(head, 9)
        if command_type != _LISTED:
            assert frame_bytes <= _HEAD_BYTES, f"got a frame of {frame_bytes} bytes of type {command_type}"
            self._command_came(decode_command(head[8:]))
            return
        _, position = _varint(head, position + 2)
        request_id, position = _varint(head, position + 1)
        self._left = frame_bytes - len(head)
        self._list = (request_id, frame_bytes, frame_bytes - position)
        self._checksum = zlib.crc32(head[position:])
        self._end_of_list()

    def _pass(self, data: memoryview) -> memoryview:
        taken = min(self._left, len(data))
        self._checksum = zlib.crc32(data[:taken], self._checksum)
        self._left -= taken
        self._end_of_list()
        return data[taken:]

    def _end_of_list(self) -> None:
        if not self._left:
            request_id, frame_bytes, body_bytes = self._list
            self._list_came(request_id, frame_bytes, (body_bytes, self._checksum))


def _varint(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Decode a protobuf varint and return it with the position behind it."""
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
