"""Count what overload control does; what it sees now is read through `view`, None while no throttle is enabled."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from proxy.core.counters import Counters, RoomCounters

if TYPE_CHECKING:
    from proxy.overload.samples import Signals
    from proxy.relay.topic_slots import RateCounts

SIGNALS = ("proxy", "brokers", "backlog")


class TopicNumbers(NamedTuple):
    """The six numbers of a topic that the adaptive throttle exports."""

    topic: str
    active: bool
    natural_rate: float
    effective_rate: float
    memory_pressure: float
    backlog_pressure: float
    reduction: float


class OverloadView(Protocol):
    """The state of overload control at this moment."""

    @property
    def signals(self) -> "Signals":
        """Return the signals in force."""

    @property
    def threshold_state(self) -> str | None:
        """Return the state of the threshold throttle, None if it is not enabled."""

    @property
    def paused(self) -> Mapping[str, int]:
        """Return the number of paused connections, and of those that would be paused."""

    @property
    def longest_pause_seconds(self) -> float:
        """Return how long the connection that was paused first has been."""

    @property
    def memory_pressure(self) -> float | None:
        """Return the pressure that the adaptive throttle sees, None if it is not enabled."""

    @property
    def active_topics(self) -> int:
        """Return the number of topics whose rate is limited."""

    @property
    def rate_counts(self) -> "RateCounts":
        """Return what is counted of all topics since the process began."""

    @property
    def shows_topics(self) -> bool:
        """Return whether a key asks for metrics of single topics."""

    def topics(self) -> Iterable[TopicNumbers]:
        """Return the topics that are throttled most; nothing unless a key asks for them."""

    def largest_topics(self, most: int) -> Iterable[TopicNumbers]:
        """Return the topics that send most, as they were chosen some seconds ago."""

    @property
    def marks(self) -> Mapping[str, float]:
        """Return the marks in force by name; those of a throttle that is not enabled are absent."""

    def age_seconds(self) -> float:
        """Return the time since the clock ran last."""


class ControllerNumbers:
    """The health of one controller: evaluations, failures, the duration and the time of the last one."""

    __slots__ = ("evaluations", "failures", "last_at", "last_seconds")

    def __init__(self) -> None:
        self.evaluations = 0
        self.failures = 0
        self.last_seconds = 0.0
        self.last_at = 0.0


class OverloadCounters(RoomCounters):
    """The counters of overload control; change the attributes directly."""

    __slots__ = (
        "activations",
        "adaptive",
        "delays",
        "drips",
        "pause_overshoots",
        "paused_by",
        "paused_seconds",
        "pauses",
        "signal_failures",
        "threshold",
        "trims",
        "view",
    )

    def __init__(self, shared: Counters | None = None) -> None:
        super().__init__(shared)
        self.view: OverloadView | None = None
        self.threshold = ControllerNumbers()
        self.adaptive = ControllerNumbers()
        self.signal_failures: dict[str, int] = dict.fromkeys(SIGNALS, 0)
        self.activations = 0
        self.pauses = 0
        self.paused_seconds = 0.0
        self.drips = 0
        # Connections whose longest pause was over, and that passed more than a frame.
        self.pause_overshoots = 0
        self.trims = 0
        # At the last look: relays that were paused, by reason, and estimated delays of messages, by rank.
        self.paused_by: Mapping[str, int] = {}
        self.delays: Mapping[str, float] = {}
