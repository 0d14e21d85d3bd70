"""A client as its requests see it: who it is, its output, its turns at the event loop, and why it is not read
(docs/adr/0024).
"""

import asyncio
from collections.abc import Hashable
from enum import IntFlag
from typing import Final

from proxy.core.addresses import host_site
from proxy.core.loop_budget import LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.output import Output
from proxy.net.transport import Endpoint, SharedReadBuffer

# The largest share of an iteration of the loop that one client has while others have work: some 0.3 ms of small frames.
# All that wait share it: of a hundred clients each is served one frame in its turn, and a client beside as many relays.
FRAMES_PER_TURN: Final = 32


class Hold(IntFlag):
    """Reasons why a client is not being read."""

    OUTSTANDING = 1
    OUTPUT = 2
    LARGE_FRAME = 4
    CONNECTING = 8
    TURN = 16
    AUTHENTICATING = 32
    AGE = 64
    RATE = 128
    COMMAND_BYTES = 256


class Client(Endpoint):
    """A client that is served while no hold is against it, and waits in line when the loop's time is spent.

    Whoever serves it sets `output`, and `max_frame_bytes`, the size of the largest frame that it accepts.
    """

    __slots__ = (
        "_budget",
        "_command_turn",
        "_deferred",
        "_holds",
        "_waits_since",
        "client_version",
        "max_frame_bytes",
        "name",
        "network",
        "output",
        "outstanding",
        "principal",
    )  # fmt: skip

    output: Output
    max_frame_bytes: int

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
        self.name = client_address
        self.client_version: str | None = None
        # Without authentication all clients are one principal.
        self.principal: Hashable = None
        # Requests that have no answer yet.
        self.outstanding = 0

    def _process(self) -> None:
        """Serve the frames that are here, as many as one turn allows."""
        raise NotImplementedError

    def fewer_requests(self) -> None:
        """Called when less is outstanding: resume reading if that is little enough."""
        raise NotImplementedError

    @property
    def gone(self) -> bool:
        """Return whether the connection has ended."""
        return self.cause is not None

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
