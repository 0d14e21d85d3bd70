"""Stand for the transport of a connection, for a protocol that a test hands its bytes."""

import asyncio
import socket
from typing import Any


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
