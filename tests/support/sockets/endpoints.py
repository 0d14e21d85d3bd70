"""Own the connections that socket tests speak over: an endpoint that records, and a plain TCP peer in front of it."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proxy.core.errors import DisconnectCause
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import Endpoint, SharedReadBuffer
from tests.support.loops.loops import eventually


class RecordingEndpoint(Endpoint):
    """Keep all that arrived and why it ended; the bytes `crash` make it crash."""

    def __init__(self, loop: asyncio.AbstractEventLoop, shared: SharedReadBuffer, hangup: HangupWatcher) -> None:
        super().__init__(loop, shared, hangup)
        self.arrived = bytearray()
        self.ends: list[DisconnectCause] = []

    def data_arrived(self, count: int) -> None:
        data = bytes(self._shared.large[:count])
        self.arrived += data
        if data == b"crash":
            raise RuntimeError("crash of this connection")

    def lost(self, cause: DisconnectCause) -> None:
        self.ends.append(cause)


class Peer:
    """The other end of a connection: a bare socket that reads only when told to."""

    def __init__(self, sock: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self.sock = sock
        sock.setblocking(False)

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.sock, data)

    def send_until_full(self) -> int:
        """Send until the kernel takes no more, and give what it took."""
        sent = 0
        try:
            while True:
                sent += self.sock.send(bytes(65536))
        except BlockingIOError:
            return sent

    async def read(self, count: int) -> bytes:
        """Read exactly `count` bytes, fewer only if the stream ends first."""
        data = bytearray()
        while len(data) < count:
            piece = await self._loop.sock_recv(self.sock, min(count - len(data), 1 << 20))
            if not piece:
                break
            data += piece
        return bytes(data)

    def half_close(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


@asynccontextmanager
async def hangup_watcher() -> AsyncIterator[HangupWatcher]:
    """Give a watcher on the running loop."""
    watcher = HangupWatcher(asyncio.get_running_loop())
    try:
        yield watcher
    finally:
        watcher.close()


def tcp_pair(receive_buffer_bytes: int = 0) -> tuple[socket.socket, socket.socket]:
    """Connect two sockets over 127.0.0.1; the second one has the given receive buffer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.socket()
        if receive_buffer_bytes:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        client.connect(listener.getsockname())
        served, _ = listener.accept()
    served.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return served, client


@asynccontextmanager
async def recording_link(
    kind: type[RecordingEndpoint] = RecordingEndpoint, kernel_buffer_bytes: int = 0
) -> AsyncIterator[tuple[RecordingEndpoint, Peer]]:
    """Give an endpoint on the running loop with its peer; nothing is left open afterwards."""
    loop = asyncio.get_running_loop()
    served, client = tcp_pair(kernel_buffer_bytes)
    if kernel_buffer_bytes:
        served.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, kernel_buffer_bytes)
    async with hangup_watcher() as watcher:
        _, endpoint = await loop.create_connection(lambda: kind(loop, SharedReadBuffer(), watcher), sock=served)
        try:
            yield endpoint, Peer(client)
        finally:
            client.close()
            transport = endpoint.transport
            endpoint.abort(DisconnectCause.SHUTDOWN)
            if transport is not None:
                transport.abort()
            await eventually(lambda: endpoint.transport is None, "the transport is gone")
