"""What all client connections share, and the limits of each connection.

Rule: these classes hold references and numbers and make no decisions.
"""

from dataclasses import dataclass
from typing import Final, Self

from limiter.semaphore import AsyncSemaphore
from proxy.auth.client_authentication import ClientAuthentication
from proxy.brokers.sockets import Sockets
from proxy.clients.requests import RequestServices
from proxy.clients.sessions import Sessions
from proxy.clients.upload_watch import UploadWatch
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.core.counters import BINARY_BYTES, upstream
from proxy.net.send_buffers import SendBuffers, SendSettings
from proxy.relay.direct_mode import DirectMode
from proxy.requests.topic_lists.memory import ListMemory

# At the limit the connection is not read: more than a client has in a storm, and far from what all may have.
MOST_OUTSTANDING: Final = 1000
# Large frames have a memory as large as this part of direct memory, a quarter, and beside it: any client may send a
# frame, and what has come of it is held until the rest has come.
SHARE_PART: Final = 4
# A Pulsar client accepts frames that are so much larger than `maxMessageSize`.
FRAME_HEADROOM_BYTES: Final = 10 * 1024


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of a client connection in bytes, requests and seconds; `frame_seconds` is for receiving a large frame."""

    max_frame_bytes: int
    max_answer_bytes: int
    frame_seconds: float
    keep_alive: bool
    max_outstanding: int = MOST_OUTSTANDING
    # PONG, and credentials that were not asked for: above the rate the connection is read later.
    unanswered_per_second: int = 1000

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the limits of a configuration."""
        return cls(
            max_frame_bytes=config.max_lookup_frame_bytes,
            max_answer_bytes=config.max_message_size + FRAME_HEADROOM_BYTES,
            frame_seconds=config.seconds(Config.topic_list_request_timeout_millis),
            keep_alive=config.keep_alive_interval_seconds > 0,
        )


BINARY_OPS: Final = upstream("binary_ops", "Commands of lookup-mode clients.")


class ClientServices:
    """What all client connections share; `authentication` is None if clients need not authenticate."""

    def __init__(
        self,
        core: Core,
        sockets: Sockets,
        memory: ListMemory,
        sessions: Sessions,
        requests: RequestServices,
        direct_mode: DirectMode,
        authentication: ClientAuthentication | None = None,
    ) -> None:
        self.loop, self.loop_budget, self.counters = core.loop, core.loop_budget, core.counters
        self.shared, self.hangup = sockets.shared, sockets.hangup
        self.limits = ClientLimits.of(core.config)
        self.sessions = sessions
        self.requests = requests
        self.direct_mode = direct_mode
        self.authentication = authentication
        self.direct = memory.limiter.direct
        self.writes = memory.writes
        self.fairness_keys = memory.fairness_keys
        # Large frames have memories of their own, in turns by address: this one, and another before CONNECTED, whose
        # queue needs no bound: each waiter is a connection that is not read.
        self.frames = self.direct.share("direct for large frames", 1 / SHARE_PART, share_by_key=True, beside=True)
        seconds = core.config.seconds(Config.handshake_timeout_millis)
        self.handshakes = AsyncSemaphore(
            "handshake", 0, max_queue=0, timeout_seconds=seconds, clock=core.loop, share_by_key=True
        )
        self.limit_handshakes(core.config.handshake_bytes)
        self.uploads = UploadWatch(lambda: memory.writes.limits.min_bytes_per_second)
        self.send_buffers = SendBuffers(core.loop, core.counters, SendSettings.of(core.config))
        # Each read and each command counts: not even a look-up by the declaration.
        self.bytes_read, self.commands = core.counters[BINARY_BYTES], core.counters[BINARY_OPS]

    def apply(self, limits: ClientLimits, handshake_seconds: float) -> None:
        """Change the limits of all clients, and the time that large frames before CONNECTED wait."""
        self.limits = limits
        self.handshakes.timeout_seconds = handshake_seconds

    def limit_handshakes(self, limit: int) -> None:
        """Set the memory for large frames before CONNECTED, which is also that of large credentials that are kept."""
        self.handshakes.set_limit(limit)
        if self.authentication is not None:
            self.authentication.holders.kept.memory.set_limit(limit)
