"""The rules of broker request connections and handshakes: how PINGs are answered, and how much a broker may ask for.

Rules:
- At most one PONG waits for a broker to read it. A PONG answers all PINGs before it, which only ask whether this side
  is alive.
- Until CONNECTED a broker, which may be any listener that a client names, gets MOST_CHALLENGES answers.
- A connection has FRAMES_PER_TURN in an iteration of the loop at most: each frame of 10 bytes costs a few microseconds,
  and a PING in an unusual form a system call.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from protocol import commands
from protocol.errors import ProtocolError, ServerError
from proxy.core.errors import DisconnectCause, RequestFailed, protocol_cause
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

    def _fall_behind(self) -> None:
        """Leave the frames that are here to this connection's next turn, and read no more until then."""
        self._behind = True
        self.pause_reading()
        self._put_off(self._catch_up)

    def _catch_up(self) -> None:
        self._behind = False
        if self.cause is not None:
            return
        try:
            self._process()
        except ProtocolError as error:
            self.abort(protocol_cause(error))
        except Exception as error:
            self.crashed(error)
        self._read_on()

    def _put_off(self, catch_up: Callable[[], None]) -> None:
        """Ask the loop budget for a turn."""
        raise NotImplementedError

    def _process(self) -> None:
        """Handle frames that are here until this connection's turn is over; may raise ProtocolError."""
        raise NotImplementedError

    def _read_on(self) -> None:
        """Read the socket again, unless something waits."""
        raise NotImplementedError

    def resume_writing(self) -> None:
        """Answer the PINGs that arrived while bytes waited in user space."""
        super().resume_writing()
        self.write_deferred_pong()
