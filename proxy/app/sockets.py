"""What all connections of an event loop share: read buffers, hang-ups, turns, and TLS."""

import asyncio
from time import perf_counter

from proxy.brokers.dialer import SocketOptions
from proxy.config.config import Config
from proxy.core.log import Logger
from proxy.core.loop_budget import LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.pump import Pump
from proxy.net.tls.files import TlsFiles
from proxy.net.tls.shared import TlsShared
from proxy.net.transport import SharedReadBuffer
from proxy.telemetry.counters import Counters


class Sockets:
    """One set for each proxy; `options` are those of every socket."""

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop, counters: Counters, log: Logger) -> None:
        self.options = SocketOptions.of(config)
        self.shared = SharedReadBuffer(config.relay_buffer_bytes)
        self.hangup = HangupWatcher(loop)
        self.pump = Pump(loop, perf_counter)
        self.loop_budget = LoopBudget(loop, perf_counter)
        self.tls_files = TlsFiles(config, counters, log)
        # Handshakes have turns of their own: they are longer than anybody else's.
        self.tls = TlsShared(LoopBudget(loop, perf_counter), config.relay_buffer_bytes)

    @property
    def quiet(self) -> bool:
        """Tell whether no list is being sent."""
        return not len(self.pump) and not len(self.loop_budget)

    def close(self) -> None:
        """Give up what the loop was asked to watch."""
        self.hangup.close()
        self.pump.close()
