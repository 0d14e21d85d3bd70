"""Count relayed bytes, and the frames of topic-list watchers among them."""

from enum import StrEnum

from proxy.core.counters import RoomCounters, SharedCounters
from proxy.net.transport import Truncation


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

    __slots__ = ("binary_bytes", "relay_bytes_to_broker", "relay_bytes_to_client", "truncations", "watch")

    def __init__(self, shared: SharedCounters | None = None) -> None:
        super().__init__(shared)
        self.binary_bytes = 0
        self.relay_bytes_to_broker = 0
        self.relay_bytes_to_client = 0
        self.truncations: dict[str, int] = dict.fromkeys(map(str, Truncation), 0)
        self.watch = WatchCounters()
