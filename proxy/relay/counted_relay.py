"""The client endpoint of a relay on the event loop whose messages are counted by topic, and slowed down by limits.

Rule: nothing here changes a byte or holds one back. A slot without tokens only stops the reading of its client (reason
RATE), until a timer of the loop says that tokens are there, or until the longest pause is over: then one frame passes.
"""

import asyncio
from collections.abc import Hashable
from typing import Final

from proxy.core.errors import DisconnectCause
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import SMALL_READ_BYTES, SharedReadBuffer
from proxy.relay.engine import Direction, PauseReason
from proxy.relay.rates.client_meter import ClientMeter, SlotTable
from proxy.relay.relay import AsyncioRelay, RelayEndpoint

# The loop's clock stands still during an iteration, and its timers may ring a little early.
_SHORTEST_TIMER_SECONDS: Final = 0.001


class CountedEndpoint(RelayEndpoint):
    """A client's endpoint with a meter."""

    __slots__ = ("_scan_seconds", "_slowed", "_timer", "_whole_left", "_whole_read", "meter")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: SharedReadBuffer,
        hangup: HangupWatcher,
        relay: AsyncioRelay,
        table: SlotTable,
    ) -> None:
        super().__init__(loop, shared, hangup, relay, DisconnectCause.CLIENT_CLOSED)
        self.meter = ClientMeter(table, self)
        self.busy_bytes = self._measured_from()
        self._timer: asyncio.TimerHandle | None = None
        self._slowed = self._whole_read = False
        # Bytes that a drip of a whole read may still pass: frames that are read a little at a time take several reads.
        self._whole_left = 0
        self._scan_seconds = 0.0

    @property
    def network(self) -> Hashable:
        """Return the network of the client."""
        return self.relay.network

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the same buffers as any relay; for a drip no more of one than the frame under way."""
        buffer = self._busy_buffer() if self._busy else self._shared.large
        return buffer[: self._whole_left or self.meter.room] if self.dripping else buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Count the bytes of a read, then relay them."""
        if self.cause is not None:
            return
        buffer = self._busy_buffer() if self._busy else self._shared.large
        # A shorter read says that nothing is left in the kernel.
        self._whole_left = max(0, self._whole_left - nbytes) if nbytes >= SMALL_READ_BYTES else 0
        try:
            if nbytes >= self.busy_bytes:
                now = self.relay.loop_budget.now
                began = now()
                dry = self.meter.scan(buffer, nbytes, self.loop.time())
                self._scan_seconds = now() - began
            else:
                dry = self.meter.scan(buffer, nbytes, self.loop.time())
            super().buffer_updated(nbytes)
            if dry:
                self.look_at_rate()
        except Exception as error:
            self.crashed(error)

    def pass_first(self, data: bytes) -> None:
        """Count the bytes that came with the handshake, then relay them."""
        dry = self.meter.scan(memoryview(data), len(data), self.loop.time())
        super().pass_first(data)
        if dry:
            self.look_at_rate()

    def _measured_from(self) -> int:
        """Measure every read that could hold hundreds of frames."""
        return SMALL_READ_BYTES + 1

    def _judge(self, seconds: float, nbytes: int) -> None:
        super()._judge(seconds + self._scan_seconds, nbytes)

    def _spend(self, seconds: float) -> None:
        super()._spend(seconds + self._scan_seconds)

    def drip(self, *, whole_read: bool = False) -> None:
        """Read one frame in spite of a pause, or with `whole_read` a relay buffer, wherever that ends in a frame."""
        if whole_read and self.paused:
            self._whole_read, self._whole_left = True, len(self._shared.bulk)
        super().drip()

    def dripped(self) -> None:
        """End a drip whose frame, or whose buffer, has passed."""
        if self._whole_read and self._whole_left:
            return
        if self._whole_read or self.meter.between_frames:
            self._whole_read = False
            super().dripped()

    def look_at_rate(self) -> None:
        """Begin, prolong or end the pause for want of tokens; after the longest pause one frame passes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.cause is not None:
            return
        now = self.loop.time()
        until, forced = self.meter.look(now)
        if until <= now and not self.meter.has_dry:
            if self._slowed:
                self._slowed = False
                self.relay.resume(Direction.TO_BROKER, PauseReason.RATE)
            return
        if not self._slowed:
            self._slowed = True
            self.pause_for(PauseReason.RATE)
            if not self.meter.between_frames:
                # The broker has a part of the frame already.
                self.drip()
        if forced and not self.dripping:
            self.meter.count_forced()
            self.drip()
        self._timer = self.loop.call_at(max(until, now + _SHORTEST_TIMER_SECONDS), self.look_at_rate)

    def lost(self, cause: DisconnectCause) -> None:
        """Release the slots of the producers, and end the relay."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.meter.close()
        super().lost(cause)


def count(
    relay: AsyncioRelay,
    table: SlotTable,
    loop: asyncio.AbstractEventLoop,
    shared: SharedReadBuffer,
    hangup: HangupWatcher,
    kind: type[CountedEndpoint] = CountedEndpoint,
) -> None:
    """Make the relay count the messages of its client; before the relay starts."""
    client = kind(loop, shared, hangup, relay, table)
    relay.client, relay.meter = client, client.meter
    client.peer, relay.broker.peer = relay.broker, client
