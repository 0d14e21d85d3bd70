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
from protocol.errors import ProtocolError, ServerError
from proxy.core.errors import ConnectionClosed, DisconnectCause, RequestFailed, protocol_cause
from proxy.core.loop_budget import LoopBudget
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
    """A connection to a broker that answers PINGs, and handles what it read in turns."""

    __slots__ = ("_behind", "_loop_budget", "_pong_deferred")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: SharedReadBuffer,
        hangup: HangupWatcher,
        loop_budget: LoopBudget,
    ) -> None:
        super().__init__(loop, shared, hangup)
        self._loop_budget = loop_budget
        self._pong_deferred = False
        # Frames wait here for this connection's next turn.
        self._behind = False

    @property
    def peer_closed_cause(self) -> DisconnectCause:
        """Return the cause that a connection ends with when the broker closes it."""
        return DisconnectCause.BROKER_CLOSED

    def closed(self, cause: DisconnectCause, what: str) -> ConnectionClosed:
        """Return the error for those who waited for this connection; `what` says what has ended it.

        A broker that refuses a certificate does so behind the handshake of TLS 1.3.
        """
        return ConnectionClosed(cause, f"{what}: {self.detail}" if self.detail else what)

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

    def _fall_behind(self, *, answers: bool = False) -> None:
        """Leave the frames that are here to this connection's next turn, and read no more until then.

        Reading must not be paused: else the turn would never come.
        """
        self._behind = True
        self.rest(self._loop_budget, 0.0, answers=answers)

    def _rested(self, turns: LoopBudget, seconds: float) -> None:
        if self._behind and self.cause is None:
            self._behind = self._resting = False
            try:
                self._process()
            except ProtocolError as error:
                self.abort(protocol_cause(error))
            except Exception as error:
                self.crashed(error)
        # A connection that fell behind again has asked for another turn.
        if not self._behind:
            super()._rested(turns, seconds)

    def _process(self) -> None:
        """Handle frames that are here until this connection's turn is over; may raise ProtocolError."""
        raise NotImplementedError

    def resume_writing(self) -> None:
        """Answer the PINGs that arrived while bytes waited in user space."""
        super().resume_writing()
        self.write_deferred_pong()
