"""Count what overload control does; what it sees now is read through `view`, None while no throttle is enabled."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from proxy.core.counters import Counters

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


class ControllerNumbers:
    """The health of one controller: evaluations, failures, the duration and the time of the last one."""

    __slots__ = ("evaluations", "failures", "last_at", "last_seconds")

    def __init__(self) -> None:
        self.evaluations = 0
        self.failures = 0
        self.last_seconds = 0.0
        self.last_at = 0.0


class OverloadCounters:
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
        "shared",
        "signal_failures",
        "threshold",
        "trims",
        "view",
    )

    def __init__(self, shared: Counters | None = None) -> None:
        self.shared = Counters() if shared is None else shared
        # The `OverloadControl` that runs; whoever reads says so, as its module imports this one.
        self.view: Any = None
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
