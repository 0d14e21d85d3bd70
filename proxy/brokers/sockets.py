"""The parts that all connections share: read buffers, hang-up detection, loop budget, TLS, listening sockets."""

from time import perf_counter

from proxy.brokers.dialer import SocketOptions
from proxy.config.core import Core
from proxy.core.loop_budget import LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.listen.listening import ListeningSockets
from proxy.net.pump import Pump
from proxy.net.tls.files import TlsFiles
from proxy.net.tls.shared import TlsShared
from proxy.net.transport import SharedReadBuffer


class Sockets:
    """The shared parts of a proxy's connections; `options` apply to every socket."""

    def __init__(self, core: Core) -> None:
        self.options = SocketOptions.of(core.config)
        self.shared = SharedReadBuffer()
        self.hangup = HangupWatcher(core.loop, core.counters)
        self.hangup.ended.limit(core.config.max_concurrent_inbound_connections)
        self.listening = ListeningSockets()
        self.pump = Pump(core.loop, perf_counter)
        self._loop_budget = core.loop_budget
        self.tls_files = TlsFiles(core.config, core.counters, core.log.of("net"))
        # TLS handshakes have a loop budget of their own, because a step of a handshake takes longest.
        self.tls = TlsShared(LoopBudget(core.loop, perf_counter), core.loop_budget)

    @property
    def quiet(self) -> bool:
        """Whether no list is being sent and no work is deferred."""
        return not len(self.pump) and not len(self._loop_budget)

    def close(self) -> None:
        """Remove all file descriptors that the loop watches."""
        self.hangup.close()
        self.pump.close()
