"""Relays under `proxyLogLevel` 1 and 2: the plain and the watched relay, each with a tap on both directions.

Rule: level 0 makes none of these classes, so it costs nothing. A tap that fails is removed and reported; the relay goes
on without it. A tap parses each frame, so a tapped endpoint is read little at a time until its frames prove large, and
even then one read brings no more than a small read of bytes of which nobody knows yet how many frames they are.
"""

import asyncio
from collections.abc import Callable
from typing import ClassVar

from proxy.core.errors import DisconnectCause
from proxy.net.transport import SMALL_READ_BYTES, peer_name
from proxy.relay.counters import RelayCounters
from proxy.relay.relay import AsyncioRelay, RelayEndpoint
from proxy.relay.relay_log import RelayLog, RelayTap
from proxy.relay.watch_relay import WatchedEndpoint, WatchedRelay

# Returns how many of the bytes to come belong to a frame that is parsed already.
TapFunction = Callable[[memoryview | bytes, int], int]


class TapMixin(RelayEndpoint):
    """An endpoint that shows its bytes to a tap before it relays them."""

    tap: TapFunction | None = None
    counters: RelayCounters
    _tap_seconds = 0.0
    # Bytes to come that cost the tap nothing, however many are read at once.
    _parsed_bytes = 0

    def adopt(self, transport: asyncio.Transport) -> None:
        """Adopt `transport`, and read little at a time for a start."""
        super().adopt(transport)
        self.cramp()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return a buffer for the rest of the frame that is being relayed, and for a small read after that frame."""
        buffer = super().get_buffer(sizehint)
        room = self._parsed_bytes + SMALL_READ_BYTES
        return buffer[:room] if self.tap is not None and room < len(buffer) else buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Show the bytes of a read to the tap, then relay them."""
        self._tap_seconds = 0.0
        if self.tap is not None:
            now = self.relay.loop_budget.now
            began = now()
            # Not what another call of `get_buffer` would give: a relay pool may have changed its mind.
            self._show(self._busy_buffer() if self._busy else self._shared.large, nbytes)
            self._tap_seconds = now() - began
        super().buffer_updated(nbytes)

    def _measured_from(self) -> int:
        """Measure every read: a tap's cost goes by frames."""
        return 0

    def _judge(self, seconds: float, nbytes: int) -> None:
        super()._judge(seconds + self._tap_seconds, nbytes)

    def _spend(self, seconds: float) -> None:
        super()._spend(seconds + self._tap_seconds)

    def pass_first(self, data: bytes) -> None:
        """Show the bytes that came with the handshake to the tap, then relay them."""
        if self.tap is not None:
            self._show(data, len(data))
        super().pass_first(data)

    def _show(self, data: memoryview | bytes, count: int) -> None:
        assert self.tap is not None
        try:
            self._parsed_bytes = self.tap(data, count)
        except Exception as error:
            self.tap = None
            self.counters.internal_error(error, "relay log")


class TappedEndpoint(TapMixin):
    """A client or broker endpoint with a tap."""


class TappedWatchedEndpoint(TapMixin, WatchedEndpoint):
    """A broker endpoint with a tap, which acquires permits for watch frames."""


class _LogMixin(AsyncioRelay):
    """A relay with taps on both endpoints, from its first byte on."""

    relay_log: RelayLog
    tap: RelayTap | None = None
    plain_endpoint: ClassVar[type[RelayEndpoint]] = TappedEndpoint

    def start(self, client: asyncio.Transport, broker: asyncio.Transport, to_client: bytes, to_broker: bytes) -> None:
        """Attach the taps and start to relay."""
        self.tap = tap = self.relay_log.tap(self.client_name, peer_name(broker))
        if tap is not None:
            self._attach(self.client, tap.to_broker)
            self._attach(self.broker, tap.to_client)
        super().start(client, broker, to_client, to_broker)

    def endpoint_lost(self, endpoint: RelayEndpoint, cause: DisconnectCause) -> None:
        """Detach the taps when the client's connection has ended."""
        super().endpoint_lost(endpoint, cause)
        if endpoint is self.client and self.tap is not None:
            for side in (self.client, self.broker):
                assert isinstance(side, TapMixin)
                side.tap = None
            self.tap.close()

    def _attach(self, endpoint: RelayEndpoint, tap: TapFunction) -> None:
        assert isinstance(endpoint, TapMixin)
        endpoint.counters, endpoint.tap = self._counters, tap


class LoggedRelay(_LogMixin):
    """A plain relay with taps."""


class LoggedWatchedRelay(_LogMixin, WatchedRelay):
    """A watched relay with taps."""

    watched_endpoint = TappedWatchedEndpoint
