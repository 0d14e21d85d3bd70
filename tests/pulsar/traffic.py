"""Own a producer and a consumer of one client that go on while a test does things to those between them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pulsar

from tests.pulsar.open_loop import Arrivals, Load, PythonProducers
from tests.support.patience import patient

# More than any other command of a connection has.
MESSAGE_BYTES: Final = 4_000
_PER_SECOND: Final = 100
_LOOK_SECONDS: Final = 0.02
_PATIENCE_SECONDS: Final = 60.0


class Traffic:
    """Numbered messages that are sent, each until it is acknowledged, and received."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self.received = Arrivals(client, [topic], "traffic")
        self.sender = PythonProducers([client], topic, Load([topic], 1, _PER_SECOND, MESSAGE_BYTES))

    def go_on(self, count: int = 20) -> None:
        """Wait until so many more messages have arrived."""
        wanted = self.received.count + count
        self._until(lambda: self.received.count >= wanted, f"{wanted} messages")

    def end(self) -> None:
        """Stop sending and receive the rest: every message that was acknowledged must have arrived, in order."""
        self.sender.stop()
        tallies = self.sender.tallies()
        # A producer that reconnects sends again what was not acknowledged to it: twice is allowed, lost is not. What
        # came twice says nothing of what is still to come.
        self._until(lambda: self.received.missing(tallies) == 0, "every message that was acknowledged")
        faults = self.received.faults(tallies, once=False)
        assert not faults, faults

    def _until(self, arrived: Callable[[], bool], wanted: str) -> None:
        deadline = time.monotonic() + patient(_PATIENCE_SECONDS)
        while not arrived():
            assert time.monotonic() < deadline, f"expected {wanted}, got {self.received.count} messages"
            time.sleep(_LOOK_SECONDS)


@contextmanager
def traffic(client: pulsar.Client, topic: str) -> Iterator[Traffic]:
    """Give traffic on a topic; at the end of the block nothing may be lost."""
    going = Traffic(client, topic)
    try:
        yield going
        going.end()
    finally:
        going.sender.end()
        going.received.end()
