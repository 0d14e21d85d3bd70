"""Add up what relays hold and what waits to be read, who is paused and why, how late messages are: once a second.

No clock; the caller waits between slices. Only relays whose engine counts producers have a delay.
"""

from collections.abc import Awaitable, Callable, Iterable
from math import isfinite
from statistics import median
from typing import Final, NamedTuple

from proxy.overload.counters import OverloadCounters
from proxy.relay.engine import Direction, PauseReason, Relay, relay_delay
from proxy.relay.memory.sockets import NOTHING_RECEIVED, ReceivedMemory

# Relays of one iteration of the loop: some 2 us each, and a call into the native engine.
SLICE: Final = 250


class HeldBytes(NamedTuple):
    """The bytes that relays hold in user space and in pipes, by receiver."""

    for_brokers: int = 0
    for_clients: int = 0


class RelayWeights:
    """The sums of the last whole look; `counters` have those that are shown.

    `most_seconds` stands for the delay of a message while nothing passes: the longest pause. `of_threads` returns what
    the sockets of the native engine have received.
    """

    def __init__(
        self,
        relays: Callable[[], Iterable[Relay]],
        counters: OverloadCounters,
        most_seconds: float,
        of_threads: Callable[[], ReceivedMemory] = lambda: NOTHING_RECEIVED,
    ) -> None:
        self._relays = relays
        self._of_threads = of_threads
        self._counters = counters
        self.most_seconds = most_seconds
        self.held = HeldBytes()
        self.received = NOTHING_RECEIVED

    async def sweep(self, pause: Callable[[], Awaitable[None]]) -> None:
        """Look at all relays, with a `pause` after each slice."""
        brokers = clients = 0
        paused = dict.fromkeys(PauseReason, 0)
        delays: list[float] = []
        from_brokers, from_clients = self._of_threads()
        for number, relay in enumerate(list(self._relays()), 1):
            seen = relay.snapshot()
            brokers += seen.unsent[Direction.TO_BROKER]
            clients += seen.unsent[Direction.TO_CLIENT]
            for reason in seen.paused[Direction.TO_BROKER] | seen.paused[Direction.TO_CLIENT]:
                paused[reason] += 1
            if relay.produces:
                delay = relay_delay(relay)
                delays.append(delay if isfinite(delay) else self.most_seconds)
            if not number % SLICE:
                await pause()
        self.held = HeldBytes(brokers, clients)
        self.received = ReceivedMemory(from_brokers, from_clients)
        self._counters.paused_by = {str(reason.name).lower(): count for reason, count in paused.items()}
        self._counters.delays = {"median": median(delays or [0.0]), "longest": max(delays, default=0.0)}

    def forget(self) -> None:
        """Show nothing any more: overload control ends."""
        self.held, self.received = HeldBytes(), NOTHING_RECEIVED
        self._counters.paused_by, self._counters.delays = {}, {}
