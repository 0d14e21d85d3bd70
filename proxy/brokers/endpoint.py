"""PING/PONG handling shared by broker request connections and handshakes.

Rule: at most one PONG waits for a broker to read it. A single PONG answers all PINGs that came before it: each PING
only asks whether this side lives.
"""

import asyncio

from protocol import commands
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import Endpoint, SharedReadBuffer


class BrokerEndpoint(Endpoint):
    """A connection to a broker that answers PINGs."""

    __slots__ = ("_owes_pong",)

    def __init__(self, loop: asyncio.AbstractEventLoop, shared: SharedReadBuffer, hangup: HangupWatcher) -> None:
        super().__init__(loop, shared, hangup)
        self._owes_pong = False

    def answer_ping(self) -> None:
        """Write PONG, now or when the broker has taken what was written before."""
        if self.write_pending:
            self._owes_pong = True
        else:
            self.write(commands.PONG_FRAME)

    def pay_pong(self) -> None:
        """Write the PONG that is still to be sent, if there is one."""
        if self._owes_pong:
            self._owes_pong = False
            self.write(commands.PONG_FRAME)

    def resume_writing(self) -> None:
        """Resume writing, and answer the PINGs that came meanwhile: all bytes have left user space."""
        super().resume_writing()
        self.pay_pong()
