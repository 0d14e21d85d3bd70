"""What both kinds of connections to brokers owe a broker that sends PINGs.

Rule: one PONG at most waits for a broker to read it. One PONG answers all PINGs that came before it: each only asks
whether this side lives.
"""

import asyncio

from protocol import commands
from proxy.core.errors import DisconnectCause
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import Endpoint, SharedReadBuffer


class BrokerEndpoint(Endpoint):
    """A connection to a broker that answers PINGs."""

    __slots__ = ("_owes_pong",)

    def __init__(self, loop: asyncio.AbstractEventLoop, shared: SharedReadBuffer, hangup: HangupWatcher) -> None:
        super().__init__(loop, shared, hangup)
        self._owes_pong = False

    @property
    def peer_closed_cause(self) -> DisconnectCause:
        """Return the cause that a connection ends with when the broker closes it."""
        return DisconnectCause.BROKER_CLOSED

    def answer_ping(self) -> None:
        """Write PONG, now or when the broker has taken what was written before."""
        if self.write_pending:
            self._owes_pong = True
        else:
            self.write(commands.PONG_FRAME)

    def pay_pong(self) -> None:
        """Write the PONG that is owed, if one is."""
        if self._owes_pong:
            self._owes_pong = False
            self.write(commands.PONG_FRAME)

    def resume_writing(self) -> None:
        """Note that all bytes have left user space, and answer the PINGs that came meanwhile."""
        super().resume_writing()
        self.pay_pong()
