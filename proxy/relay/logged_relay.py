"""Relays that `proxyLogLevel` looks at: the others, with a tap on both directions.

Rule: level 0 makes none of these, so it costs nothing. A tap that fails is taken away and reported; the pair goes on.
"""

import asyncio
from collections.abc import Callable

from proxy.core.errors import DisconnectCause
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import SharedReadBuffer, peer_name
from proxy.relay.counters import RelayCounters
from proxy.relay.relay import Relay, RelayEndpoint
from proxy.relay.relay_log import RelayLog, RelayTap
from proxy.relay.watch_relay import WatchedEndpoint, WatchedRelay

See = Callable[[memoryview | bytes, int], None]


class _Tapped(RelayEndpoint):
    """A side whose bytes are looked at before they are passed on."""

    see: See | None = None
    counters: RelayCounters

    def buffer_updated(self, nbytes: int) -> None:
        """Look at what was read, then do what this side does with it."""
        if self.see is not None:
            self._look(self.get_buffer(nbytes), nbytes)
        super().buffer_updated(nbytes)

    def pass_first(self, data: bytes) -> None:
        """Look at what came behind the handshake."""
        if self.see is not None:
            self._look(data, len(data))
        super().pass_first(data)

    def _look(self, data: memoryview | bytes, count: int) -> None:
        assert self.see is not None
        try:
            self.see(data, count)
        except Exception as error:
            self.see = None
            self.counters.internal_error(error, "relay log")


class TappedEndpoint(_Tapped):
    """A tapped side of a plain relay, or a client."""


class TappedWatchedEndpoint(_Tapped, WatchedEndpoint):
    """A tapped broker whose watch frames ask for memory."""


class _Logged(Relay):
    """A relay that has itself looked at from its first byte on."""

    relay_log: RelayLog
    tap: RelayTap | None = None

    def start(self, client: asyncio.Transport, broker: asyncio.Transport, to_client: bytes, to_broker: bytes) -> None:
        """Begin to look, and to relay."""
        self.tap = tap = self.relay_log.tap(self.client_name, peer_name(broker))
        if tap is not None:
            self._look_at(self.client, tap.to_broker)
            self._look_at(self.broker, tap.to_client)
        super().start(client, broker, to_client, to_broker)

    def end_lost(self, end: RelayEndpoint, cause: DisconnectCause) -> None:
        """Look no more when the client is gone."""
        super().end_lost(end, cause)
        if end is self.client and self.tap is not None:
            for side in (self.client, self.broker):
                assert isinstance(side, _Tapped)
                side.see = None
            self.tap.close()

    def make_client_end(
        self, loop: asyncio.AbstractEventLoop, shared: SharedReadBuffer, hangup: HangupWatcher
    ) -> RelayEndpoint:
        """Make a tapped side for the client."""
        return TappedEndpoint(loop, shared, hangup, self, DisconnectCause.CLIENT_CLOSED)

    def _look_at(self, end: RelayEndpoint, see: See) -> None:
        assert isinstance(end, _Tapped)
        end.counters, end.see = self._counters, see


class LoggedRelay(_Logged):
    """A plain relay that is looked at."""

    def make_broker_end(
        self, loop: asyncio.AbstractEventLoop, shared: SharedReadBuffer, hangup: HangupWatcher
    ) -> RelayEndpoint:
        """Make a tapped side for the broker."""
        return TappedEndpoint(loop, shared, hangup, self, DisconnectCause.BROKER_CLOSED)


class LoggedWatchedRelay(_Logged, WatchedRelay):
    """A relay with watch frames that is looked at."""

    def make_broker_end(
        self, loop: asyncio.AbstractEventLoop, shared: SharedReadBuffer, hangup: HangupWatcher
    ) -> RelayEndpoint:
        """Make a tapped side that is walked."""
        return TappedWatchedEndpoint(loop, shared, hangup, self, self._watch, self._key)
