"""Own a Pulsar client on the test's loop that reads only what a test takes, so that it can be slow, silent or rude.

Rule: it adds nothing by itself: no PONG, no buffer of its own beyond the frame being received. Frames are cut by hand,
not by the decoder under test. Knows no proxy.
"""

import asyncio
import fcntl
import itertools
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable
from typing import Any, Final, Self

from protocol.commands import PING_FRAME, PONG_FRAME, decode_command, frame, request_id_of
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.commands import command
from tests.support.patience import PATIENCE_SECONDS, in_time, patient

LOOPBACK: Final = "127.0.0.1"
_LINGER_RESET: Final = struct.pack("ii", 1, 0)
# A read allocates all that it may bring.
_MOST_BYTES: Final = 64 * 1024


async def eventually(condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until `condition` holds; fail with `what` after a deadline that only a broken program reaches."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not condition():
        waited = loop.time() - began
        # Asked for only then: the machine may have become busy since the first look.
        assert waited < seconds or waited < patient(seconds), f"expected within {waited:.0f} s: {what}"
        await asyncio.sleep(0.002)


class Closed(Exception):
    """The peer has ended the connection, by FIN or by RST."""


class AsyncClient:
    """One raw connection to `port` on loopback; everything it waits for has a deadline."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        # How long it waits for bytes.
        self.seconds = PATIENCE_SECONDS
        self._loop = asyncio.get_running_loop()
        self._request_ids = itertools.count(1)
        self._unsent = b""

    @classmethod
    async def open(cls, port: int, rcvbuf: int | None = None, source: str = LOOPBACK) -> Self:
        sock = socket.socket()
        sock.setblocking(False)
        if source != LOOPBACK:
            sock.bind((source, 0))
        if rcvbuf is not None:
            # Before connect(): the window scale is fixed by the handshake.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        try:
            async with in_time():
                await asyncio.get_running_loop().sock_connect(sock, (LOOPBACK, port))
        except BaseException:
            sock.close()
            raise
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock)

    # --- bytes ------------------------------------------------------------------------------------

    async def shake(self) -> Self:
        """Do what comes before the first byte: nothing, without TLS."""
        return self

    async def send(self, data: bytes) -> None:
        async with in_time():
            await self._loop.sock_sendall(self.sock, data)

    def send_now(self, data: bytes) -> int:
        """Send as much as the kernel takes at once."""
        try:
            return self.sock.send(data)
        except BlockingIOError:
            return 0

    def receive_now(self, size: int) -> bytes:
        """Read what is there, at most `size` bytes."""
        try:
            return self.sock.recv(size)
        except BlockingIOError:
            return b""

    @property
    def undelivered(self) -> int:
        """The bytes that were sent and that the peer's kernel has not acknowledged."""
        return int.from_bytes(fcntl.ioctl(self.sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)

    def deliver(self) -> None:
        """Wait without a turn of the loop until the peer's kernel has all that was sent, on a busy machine, too."""
        until = time.monotonic() + patient(PATIENCE_SECONDS)
        while self.undelivered:
            assert time.monotonic() < until, f"{self.undelivered} bytes not delivered"
            time.sleep(0.0005)

    def flood(self, frames: bytes) -> int:
        """Send as much of `frames` as the kernel takes at once, and return how many bytes; the rest goes next time.

        Half a frame followed by another is no frame, and whoever sends that is disconnected.
        """
        self._unsent = self._unsent or frames
        taken = self.send_now(self._unsent)
        self._unsent = self._unsent[taken:]
        return taken

    async def receive(self, size: int) -> bytes:
        """Read exactly `size` bytes; raises Closed."""
        data = bytearray()
        async with in_time(self.seconds):
            while len(data) < size:
                data += await self.some(min(size - len(data), _MOST_BYTES))
        return bytes(data)

    async def rest(self) -> bytes:
        """Read until the peer ends the connection and give what came before; it must end it."""
        data = bytearray()
        async with in_time(self.seconds):
            while True:
                try:
                    data += await self.some(_MOST_BYTES)
                except Closed:
                    return bytes(data)

    async def some(self, count: int) -> bytes:
        """Read up to `count` bytes; raises Closed."""
        try:
            piece = await self._loop.sock_recv(self.sock, count)
        except ConnectionError as error:
            raise Closed("reset") from error
        if not piece:
            raise Closed("closed")
        return piece

    def fin(self) -> None:
        """Send no more, go on reading."""
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
        self.sock.close()

    def close(self) -> None:
        self.sock.close()

    # --- frames -----------------------------------------------------------------------------------

    async def frame(self) -> bytes:
        """Read one frame, its size included."""
        size = await self.receive(4)
        return size + await self.receive(int.from_bytes(size, "big"))

    async def command(self) -> pb.BaseCommand:
        return command_of(await self.frame())

    async def last_command(self) -> pb.BaseCommand:
        """Read one command, behind which the peer must end the connection."""
        command = await self.command()
        behind = await self.rest()
        assert not behind, f"expected the end of the connection, got {len(behind)} bytes"
        return command

    async def answer(self, pong: bool = False) -> pb.BaseCommand:
        """Read the next command that is no PING, answering PINGs if asked to."""
        while True:
            command = await self.command()
            if command.type != pb.BaseCommand.PING:
                return command
            if pong:
                await self.send(PONG_FRAME)

    async def send_command(self, command: pb.BaseCommand) -> None:
        await self.send(frame(command))

    # --- the protocol -----------------------------------------------------------------------------

    async def connect(self, target: str | None = None, version: int = 21) -> pb.CommandConnected:
        await self.send(connect_frame(target, version))
        answer = await self.command()
        assert answer.type == pb.BaseCommand.CONNECTED, answer
        return answer.connected

    def next_id(self) -> int:
        return next(self._request_ids)

    async def ask_topics(self, namespace: str) -> int:
        """Send a topic-list request and give its id."""
        request_id = self.next_id()
        await self.send(topics_frame(request_id, namespace))
        return request_id

    async def topics(self, namespace: str) -> pb.CommandGetTopicsOfNamespaceResponse:
        """Ask for a list and read it."""
        request_id = await self.ask_topics(namespace)
        answer = await self.answer()
        assert answer.type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, answer
        assert request_id_of(answer) == request_id
        return answer.getTopicsOfNamespaceResponse

    async def refused_topics(self, namespace: str) -> pb.CommandError:
        """Ask for a list and read the error."""
        request_id = await self.ask_topics(namespace)
        return await self.error(request_id)

    async def error(self, request_id: int) -> pb.CommandError:
        """Read an ERROR with that request id."""
        answer = await self.answer()
        assert answer.type == pb.BaseCommand.ERROR, pb.BaseCommand.Type.Name(answer.type)
        assert request_id_of(answer) == request_id
        return answer.error

    async def lookup(self, topic: str) -> pb.CommandLookupTopicResponse:
        request_id = self.next_id()
        await self.send(lookup_frame(request_id, topic))
        answer = await self.answer()
        assert answer.type == pb.BaseCommand.LOOKUP_RESPONSE, answer
        assert request_id_of(answer) == request_id
        return answer.lookupTopicResponse

    async def ping(self) -> None:
        """Send a PING; the next command must be its PONG."""
        await self.send(PING)
        answer = await self.command()
        assert answer.type == pb.BaseCommand.PONG, pb.BaseCommand.Type.Name(answer.type)


def command_of(whole_frame: bytes) -> pb.BaseCommand:
    """Decode a frame without a payload."""
    size = int.from_bytes(whole_frame[4:8], "big")
    assert len(whole_frame) == 8 + size, f"frame of {len(whole_frame)} bytes with a command of {size}"
    return decode_command(whole_frame[8:])


def connect_frame(target: str | None = None, version: int = 21, **fields: Any) -> bytes:
    given = {"client_version": "async-client", "protocol_version": version, "proxy_to_broker_url": target, **fields}
    return frame(command("CONNECT", **given))


def topics_frame(request_id: int, namespace: str) -> bytes:
    return frame(command("GET_TOPICS_OF_NAMESPACE", request_id=request_id, namespace=namespace))


def lookup_frame(request_id: int, topic: str) -> bytes:
    return frame(command("LOOKUP", request_id=request_id, topic=topic))


def schema_frame(request_id: int, topic: str) -> bytes:
    return frame(command("GET_SCHEMA", request_id=request_id, topic=topic))


def new_schema_frame(request_id: int, topic: str, data_bytes: int) -> bytes:
    """Build a request whose frame is as large as a test needs it."""
    schema = pb.Schema(name="s", type=pb.Schema.String, schema_data=bytes(data_bytes))
    return frame(command("GET_OR_CREATE_SCHEMA", request_id=request_id, topic=topic, schema=schema))


PING: Final = PING_FRAME
