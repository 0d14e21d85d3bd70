"""Count relayed bytes, and the frames of topic-list watchers among them; the threads that move the bytes."""

from enum import StrEnum
from typing import TYPE_CHECKING

from proxy.core.counters import RoomCounters, SharedCounters
from proxy.relay.memory.sockets import NO_SOCKET_MEMORY
from proxy.relay.threads import NO_THREADS

if TYPE_CHECKING:
    from proxy.relay.memory.bound import SocketBound
    from proxy.relay.memory.pool import RelayPool


class Truncation(StrEnum):
    """Where a stream ended without close_notify: by a crash of the peer, or by somebody on the way."""

    INSIDE_FRAME = "inside_frame"
    BETWEEN_FRAMES = "between_frames"


class WatchOvershoot(StrEnum):
    """Why a frame for a topic-list watcher passed without a permit, or lost its permit before it had passed."""

    PAUSE_OVER = "pause_over"
    PAUSED_BEFORE = "paused_before"
    QUEUE_FULL = "queue_full"
    SHARE = "share"
    INSIDE_FRAME = "inside_frame"
    HELD_TOO_LONG = "held_too_long"
    BROKER_GONE = "broker_gone"
    CLOSED = "closed"
    # The native engine asks at most 1,000 times a second for one connection.
    TOO_MANY = "too_many"


class WatchCounters:
    """Counters of topic-list watchers on relayed connections; change the attributes directly."""

    __slots__ = ("frame_bytes", "overshoots", "pause_seconds", "pauses", "successes", "unwalkable", "updates")

    def __init__(self) -> None:
        self.successes = 0
        self.updates = 0
        self.frame_bytes = 0
        self.pauses = 0
        self.pause_seconds = 0.0
        self.overshoots: dict[str, int] = dict.fromkeys(map(str, WatchOvershoot), 0)
        self.unwalkable = 0


class RelayCounters(RoomCounters):
    """The counters of relays; change the attributes directly."""

    __slots__ = (
        "binary_bytes",
        "bound",
        "native_refusals",
        "pool",
        "relay_bytes_to_broker",
        "relay_bytes_to_client",
        "socket_memory",
        "threads",
        "truncations",
        "watch",
    )

    def __init__(self, shared: SharedCounters | None = None) -> None:
        super().__init__(shared)
        self.binary_bytes = 0
        # Relays that the native engine had no room for, and that ended.
        self.native_refusals = 0
        self.relay_bytes_to_broker = 0
        self.relay_bytes_to_client = 0
        self.threads = NO_THREADS
        # The memory that relays share; None without a limit.
        self.pool: RelayPool | None = None
        # The bound in sum for the kernel memory of relayed sockets; None without a limit.
        self.bound: SocketBound | None = None
        # Kernel memory of relayed sockets, at the last look.
        self.socket_memory = NO_SOCKET_MEMORY
        self.truncations: dict[str, int] = dict.fromkeys(map(str, Truncation), 0)
        self.watch = WatchCounters()
