"""The turns of one client at the event loop, and the reasons for which the client is not read (docs/adr/0024)."""

import asyncio
from typing import Final

from proxy.clients.session import Hold
from proxy.core.addresses import host_site
from proxy.core.loop_budget import LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import Endpoint, SharedReadBuffer

# The largest share of an iteration of the loop that one client has while others have work: some 0.3 ms of small frames.
# All that wait share it: of a hundred clients each is served one frame in its turn, and a client beside as many relays.
FRAMES_PER_TURN: Final = 32


class TurnTaker(Endpoint):
    """A client that is served while no hold is against it, and waits in line when the loop's time is spent."""

    __slots__ = ("_budget", "_command_turn", "_deferred", "_holds", "_waits_since", "network")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: SharedReadBuffer,
        hangup: HangupWatcher,
        budget: LoopBudget,
        client_address: str,
    ) -> None:
        super().__init__(loop, shared, hangup)
        self._budget = budget
        self._holds = Hold(0)
        # This client has its turn: one command is served although the memory for commands is used up.
        self._command_turn = False
        self._deferred = False
        # When the frames that are left joined the line; 0.0: none waited.
        self._waits_since = 0.0
        # The party that takes turns: an address, or an IPv6 /48 network, which has 65,536 of a host's networks.
        self.network = host_site(client_address)

    def _process(self) -> None:
        """Serve the frames that are here, as many as one turn allows."""
        raise NotImplementedError

    @property
    def put_off(self) -> bool:
        """Return whether the client is not read or not served now because the proxy has other work before it."""
        return self._resting or self._deferred or bool(self._holds & Hold.TURN)

    @property
    def holds(self) -> tuple[str, ...]:
        """Return the names of the reasons for which the client is not being read."""
        return tuple(str(hold.name).lower() for hold in Hold if self._holds & hold)

    def hold(self, reason: Hold) -> None:
        """Stop reading and processing, for one more reason."""
        self._holds |= reason
        self.pause_reading()

    def unhold(self, reason: Hold) -> None:
        """Resume processing and reading, unless there is another reason left."""
        if not self._holds or not self._holds & reason or self.cause is not None:
            return
        self._holds &= ~reason
        if not self._holds:
            self._process()
            if not self._holds:
                self.resume_reading()

    def begin_command_turn(self) -> None:
        """Serve one command, and be read on."""
        self._command_turn = True
        try:
            self.unhold(Hold.COMMAND_BYTES)
        finally:
            self._command_turn = False

    def _had_turn(self, frames: int) -> bool:
        """Return whether a client that was served so many frames must leave the rest to its next turn."""
        budget = self._budget
        return frames * (1 + budget.sharers) >= FRAMES_PER_TURN or budget.spent()

    def _await_turn(self, *, behind_lists: bool = False) -> None:
        """Join the line, or stay in it; `behind_lists`: the line of lists, which has turns by network, too."""
        if self._deferred:
            return
        self._deferred = True
        # Frames that a turn has left keep their clock.
        self._waits_since = self._waits_since or self.loop.time()
        if behind_lists:
            self._budget.defer(self._take_turn, self.network)
        else:
            self._budget.defer_client(self.network, self._take_turn)

    def _take_turn(self) -> None:
        self._deferred = False
        if self._holds and self._holds & Hold.TURN:
            self.unhold(Hold.TURN)
        else:
            self._process()
