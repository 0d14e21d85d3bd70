"""Stand for the transport of a connection, for a protocol that a test hands its bytes."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from proxy.core.counters import Counters
from proxy.core.loop_budget import LoopBudget
from proxy.web.connection import READ_AHEAD_BYTES, HttpConnection, HttpServer
from proxy.web.server import MOST_HEADERS

LONGEST_HEADER: Final = 8192


class Socket(asyncio.Transport):
    """A transport that says whether its socket is read; `real` is a socket for those who ask the kernel."""

    def __init__(self, real: socket.socket | None = None) -> None:
        super().__init__()
        self.real = real
        self.paused = False
        self.written = b""
        self.closed = False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: Any) -> None:
        self.written += data

    def writelines(self, parts: Any) -> None:
        self.written += b"".join(parts)

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.real if name == "socket" and self.real is not None else default

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


def http_server(
    answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], budget: LoopBudget | None = None
) -> HttpServer:
    """Make a server whose requests are answered so."""
    return HttpServer(
        answer, Counters(), budget, 1,
        access_log=None, auto_decompress=False, tcp_keepalive=False, max_headers=MOST_HEADERS,
        max_line_size=LONGEST_HEADER, max_field_size=LONGEST_HEADER, read_bufsize=READ_AHEAD_BYTES,
        handler_cancellation=True,
    )  # fmt: skip


def opened(server: HttpServer) -> tuple[HttpConnection, Socket]:
    """Open a connection of a web client."""
    connection, socket = server(), Socket()
    connection.accepted_from = "10.0.0.1"
    connection.connection_made(socket)
    return connection, socket
