"""Own an endpoint that is nothing but a descriptor: what `proxy.net.pump` needs to know of one."""

import socket
from typing import Final

from proxy.core.errors import DisconnectCause

READ_BYTES: Final = 1024 * 1024


class FakeEndpoint:
    """One end of a socket pair, seen as the pump sees an endpoint; the other end is `peer`."""

    def __init__(self) -> None:
        self.sock, self.peer = socket.socketpair()
        for sock in (self.sock, self.peer):
            sock.setblocking(False)
        self.fd = self.sock.fileno()
        self.cause: DisconnectCause | None = None
        self.peer_closed_cause = DisconnectCause.CLIENT_CLOSED
        self.crashes: list[BaseException] = []
        self.is_tls = False

    @property
    def open(self) -> bool:
        return self.cause is None

    def abort(self, cause: DisconnectCause) -> None:
        self.cause = cause

    def crashed(self, error: BaseException) -> None:
        self.crashes.append(error)
        self.abort(DisconnectCause.INTERNAL_ERROR)

    def received(self) -> int:
        """Take all that is there, and count it."""
        count = 0
        try:
            while data := self.peer.recv(READ_BYTES):
                count += len(data)
        except BlockingIOError:
            return count
        return count

    def close(self) -> None:
        self.sock.close()
        self.peer.close()
