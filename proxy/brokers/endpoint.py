"""The rules of broker request connections and handshakes: how PINGs are answered, and how much a broker may ask for.

Rules:
- At most one PONG waits for a broker to read it. A PONG answers all PINGs before it, which only ask whether this side
  is alive.
- Until CONNECTED a broker, which may be any listener that a client names, gets MOST_CHALLENGES answers.
- A connection has FRAMES_PER_TURN in an iteration of the loop at most: each frame of 10 bytes costs a few microseconds,
  and a PING in an unusual form a system call.
"""

import asyncio
from typing import Final

from protocol import commands
from protocol.errors import ServerError
from proxy.core.errors import DisconnectCause, RequestFailed
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import Endpoint, SharedReadBuffer

# Challenges that are answered in one conversation before CONNECTED; a broker may ask more than once.
MOST_CHALLENGES: Final = 4
# The largest share of an iteration of the loop that one connection has while others have work.
FRAMES_PER_TURN: Final = 64


def goes_on_asking() -> RequestFailed:
    """Return the error of a broker that was answered MOST_CHALLENGES times and asks for credentials again."""
    return RequestFailed(ServerError.AuthenticationError, "the broker goes on asking for credentials")


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
