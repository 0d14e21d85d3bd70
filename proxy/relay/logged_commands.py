"""The commands of a relay under `proxyLogLevel` 1 and 2: from the engine's thread to the lines of the log.

Rule: the log only observes. Commands are parsed a few at a time, in the turns of the client's network; what waits is
bounded by the engine, which reads neither side meanwhile. A tap that fails is removed and reported, and the relay goes
on without it.
"""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from proxy.core.counters import Counters
from proxy.core.loop_budget import LoopBudget
from proxy.relay.engine import Direction
from proxy.relay.relay_log import RelayTap

if TYPE_CHECKING:
    from proxy.core.native import CommandTap

# Commands that are parsed at once: each takes some 10 to 50 us.
COMMANDS_A_TURN: Final = 16


class LoggedCommands:
    """Takes the commands of one relay for its tap."""

    def __init__(
        self, source: "CommandTap", tap: RelayTap, turns: LoopBudget, network: Hashable, counters: Counters
    ) -> None:
        self.source = source
        self._tap = tap
        self._turns = turns
        self._network = network
        self._counters = counters
        self._waits = self._ended = False

    def arrived(self) -> None:
        """Take the commands that wait, now or in the turn of the network."""
        if self._waits:
            return
        if self._turns.spent() or self._turns.sharers:
            self._wait()
        else:
            self._take()

    def end(self) -> None:
        """Take what is left, then close the tap: the pair has ended."""
        self._ended = True
        self.arrived()

    def _wait(self) -> None:
        self._waits = True
        self._turns.defer_client(self._network, self._take)

    def _take(self) -> None:
        self._waits = False
        try:
            commands = self.source.take(COMMANDS_A_TURN)
            for direction, head in commands:
                self._tap.show(Direction(direction), head)
        except Exception as error:
            self._counters.internal_error(error, "relay log")
            self._close()
            return
        if len(commands) == COMMANDS_A_TURN:
            self._wait()
        elif self._ended:
            self._close()

    def _close(self) -> None:
        self.source.close()
        self._tap.close()
