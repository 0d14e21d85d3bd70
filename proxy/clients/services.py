"""Services that all client connections share, and the limits of each connection.

Rule: these classes hold references and numbers and make no decisions.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final, Self

from limiter.semaphore import AsyncSemaphore
from proxy.auth.client_authentication import ClientAuthentication
from proxy.auth.fairness_key import FairnessKeys
from proxy.clients.requests import RequestServices
from proxy.clients.sessions import Sessions
from proxy.clients.upload_watch import UploadWatch
from proxy.config.config import Config
from proxy.core.counters import BINARY_BYTES, Counters, Number, upstream
from proxy.core.loop_budget import LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.send_buffers import SendBuffers
from proxy.net.transport import SharedReadBuffer
from proxy.net.write_watch import WriteWatch
from proxy.relay.direct_mode import DirectMode

# At the limit the connection is not read: more than a client has in a storm, and far from what all may have.
MOST_OUTSTANDING: Final = 1000


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of a client connection in bytes, requests and seconds; `frame_seconds` is for receiving a large frame."""

    max_frame_bytes: int
    max_message_bytes: int
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
            max_message_bytes=config.max_message_size,
            frame_seconds=config.seconds(Config.topic_list_request_timeout_millis),
            keep_alive=config.keep_alive_interval_seconds > 0,
        )


BINARY_OPS: Final = upstream("binary_ops", "Commands of lookup-mode clients.")


@dataclass(slots=True)
class ClientServices:
    """The services of client connections; `limits` is replaced when the configuration changes."""

    loop: asyncio.AbstractEventLoop
    shared: SharedReadBuffer
    hangup: HangupWatcher
    counters: Counters
    limits: ClientLimits
    direct: AsyncSemaphore
    # The part of direct memory that large frames take; before CONNECTED they have a memory of their own, in turns by
    # address.
    frames: AsyncSemaphore
    handshakes: AsyncSemaphore
    uploads: UploadWatch
    requests: RequestServices
    direct_mode: DirectMode
    sessions: Sessions
    server_version: str
    writes: WriteWatch
    loop_budget: LoopBudget
    fairness_keys: FairnessKeys
    send_buffers: SendBuffers
    authentication: ClientAuthentication | None = None
    # Each read and each command counts: not even a look-up by the declaration.
    bytes_read: Number = field(init=False)
    commands: Number = field(init=False)

    def __post_init__(self) -> None:
        self.bytes_read, self.commands = self.counters[BINARY_BYTES], self.counters[BINARY_OPS]
