"""The limiter, its share and the settings for frames of topic-list watchers, used by all relays.

The settings may change at any time. A new relay scans its frames if `enabled` is set when it begins. A relay that scans
goes on scanning, but acquires no permits while `enabled` is false; a relay that does not scan cannot begin to, because
its position within a frame is unknown. A pause under way keeps its length.
"""

from enum import StrEnum
from typing import Final, NamedTuple, Self

from limiter.semaphore import AsyncSemaphore
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.core.counters import Counters, counter, counter_by
from proxy.telemetry.events.recorder import Recorder

# Frames for watchers take at most this part of direct memory, a quarter: their permits count bytes that are within the
# relays' own budget, and any host that a client names as its broker may send such frames.
SHARE_PART: Final = 4
# The broker is not read while a frame waits: longer would delay its messages and PINGs more than memory is worth.
LONGEST_PAUSE_SECONDS: Final = 1.0


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


FRAMES: Final = counter_by(
    "kind",
    "watch_frames",
    "Frames of topic-list watchers relayed to clients; any list of scalable topics counts as update.",
    ("success", "update"),
)
FRAME_BYTES: Final = counter("watch_bytes", "Bytes of frames for topic-list watchers relayed to clients.", "bytes")
PAUSES: Final = counter("watch_pauses", "Pauses in reading a relayed broker until a watcher's frame got direct memory.")
PAUSE_SECONDS: Final = counter(
    "watch_pause_seconds", "Total length of the pauses in reading relayed brokers for watchers' frames.", "seconds"
)
OVERSHOOTS: Final = counter_by(
    "reason",
    "watch_overshoots",
    "Frames of watchers that passed without a permit, or whose permit was released before they had passed.",
    WatchOvershoot,
)
UNWALKABLE: Final = counter(
    "watch_unwalkable",
    "Relayed connections whose broker sent bytes that are no frames; watch limits end for such a connection.",
)


class FrameMatch(NamedTuple):
    """Watch frames that the threads have found: full lists and updates, their size on the wire, and what is to come."""

    successes: int
    updates: int
    frame_bytes: int
    open_bytes: int = 0


class WatchSettings(NamedTuple):
    """Whether frames for watchers need permits, and how long a permit is held at most."""

    enabled: bool
    longest_hold_seconds: float

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the settings of a configuration."""
        return cls(config.watch_topic_list_limit_enabled, config.seconds(Config.topic_list_request_timeout_millis))


class WatchLimits:
    """The direct limiter, and how long a relay waits for a permit; `window_bytes` is the largest permit of a relay.

    `held_bytes` is the sum of the permits of all relays. `recorder` records the frames, if there is an event log.
    """

    __slots__ = (
        "counters",
        "direct",
        "enabled",
        "held_bytes",
        "longest_hold_seconds",
        "max_pause_seconds",
        "recorder",
        "window_bytes",
    )

    def __init__(
        self,
        direct: AsyncSemaphore,
        counters: Counters,
        settings: WatchSettings,
        *,
        window_bytes: int,
        max_pause_seconds: float = LONGEST_PAUSE_SECONDS,
        recorder: "Recorder | None" = None,
    ) -> None:
        self.direct = direct
        self.counters = counters
        self.window_bytes = window_bytes
        self.max_pause_seconds = max_pause_seconds
        self.held_bytes = 0
        self.recorder = recorder
        self.apply(settings)

    @classmethod
    def of(cls, core: Core, direct: AsyncSemaphore, recorder: "Recorder | None") -> Self:
        """Return the limits of a configuration."""
        settings, window_bytes = WatchSettings.of(core.config), core.config.relay_buffer_bytes
        return cls(direct, core.counters, settings, window_bytes=window_bytes, recorder=recorder)

    def apply(self, settings: WatchSettings) -> None:
        """Apply other settings."""
        self.enabled, self.longest_hold_seconds = settings

    def in_share(self, size: int) -> bool:
        """Return whether a permit of `size` bytes is within the part of direct memory that frames for watchers have."""
        # A first permit is always within: the share of a small limit may be less than a read.
        return (
            not self.held_bytes or self.direct.limit <= 0 or (self.held_bytes + size) * SHARE_PART <= self.direct.limit
        )

    def count(self, match: FrameMatch) -> None:
        """Count the watch frames that were found in one read."""
        frames = self.counters[FRAMES]
        frames["success"] += match.successes
        frames["update"] += match.updates
        self.counters[FRAME_BYTES].value += match.frame_bytes

    def overshot(self, why: WatchOvershoot) -> None:
        """Count watch frames that pass without a permit, or whose permit is released before they have passed."""
        self.counters[OVERSHOOTS][why] += 1
