"""PING/PONG handling shared by broker request connections and handshakes.

Rule: at most one PONG waits for a broker to read it. A PONG answers all PINGs before it, which only ask whether this
side is alive.
"""

import asyncio

from protocol import commands
from proxy.core.errors import DisconnectCause
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import Endpoint, SharedReadBuffer


class BrokerEndpoint(Endpoint):
    """A connection to a broker that answers PINGs."""

    __slots__ = ("_pong_deferred",)

    def __init__(self, loop: asyncio.AbstractEventLoop, shared: SharedReadBuffer, hangup: HangupWatcher) -> None:
        super().__init__(loop, shared, hangup)
        self._pong_deferred = False

    @property
    def peer_closed_cause(self) -> DisconnectCause:
        """Return the cause that a connection ends with when the broker closes it."""
        return DisconnectCause.BROKER_CLOSED

    def answer_ping(self) -> None:
        """Write PONG, now or when the broker has received all bytes written before."""
        if self.write_pending:
            self._pong_deferred = True
        else:
            self.write(commands.PONG_FRAME)

    def write_deferred_pong(self) -> None:
        """Write a deferred PONG, if there is one."""
        if self._pong_deferred:
            self._pong_deferred = False
            self.write(commands.PONG_FRAME)

    def resume_writing(self) -> None:
        """Answer the PINGs that arrived while bytes waited in user space."""
        super().resume_writing()
        self.write_deferred_pong()
