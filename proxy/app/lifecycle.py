"""The order in which a proxy leaves: what it does at a signal, for how long, and what cuts that short.

Rule: no I/O and no clock of its own; it is told signals, the time and how many clients there are, and answers with the
phase of that moment (`proxy.cli.serve` does what it says). A gateway's readiness fails at once, but it serves and
accepts for a while, because balancers hear of it late; then it drains. A sidecar shares its pod with the only
application that uses it, which is leaving too and may still connect: it goes on as before until nobody is left.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, Self

from proxy.config.config import Config

# A sidecar's application closes one connection and opens the next while it leaves: for so long nobody must be there.
QUIET_SECONDS: Final = 1.0


class DeploymentRole(StrEnum):
    """Where the proxy stands (`proxyRole`)."""

    GATEWAY = "gateway"
    SIDECAR = "sidecar"


class StopSignal(Enum):
    """What the proxy was told: by an orchestrator, or by somebody at a terminal who waits for it."""

    TERMINATE = "terminate"
    INTERRUPT = "interrupt"


class Phase(StrEnum):
    """How far the proxy is; a later phase is never followed by an earlier one."""

    SERVING = "serving"
    LEAVING = "leaving"
    DRAINING = "draining"
    CLOSING = "closing"


_ORDER: Final = tuple(Phase)


@dataclass(frozen=True, slots=True)
class ShutdownPlan:
    """How a proxy leaves, in seconds; `drain_seconds` is a sidecar's whole time."""

    role: DeploymentRole
    pre_drain_seconds: float
    drain_seconds: float

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the plan of a configuration."""
        return cls(
            DeploymentRole(config.proxy_role),
            config.seconds(Config.shutdown_pre_drain_millis),
            config.seconds(Config.shutdown_drain_millis),
        )

    @property
    def longest_seconds(self) -> float:
        """Give the time after which everything is closed, whatever the clients do."""
        return self.drain_seconds + (self.pre_drain_seconds if self.role is DeploymentRole.GATEWAY else 0.0)


class Shutdown:
    """The phases of one proxy's end."""

    def __init__(self) -> None:
        self.phase = Phase.SERVING
        self._plan = ShutdownPlan(DeploymentRole.GATEWAY, 0.0, 0.0)
        self._leave_ends = 0.0
        self._drain_ends = 0.0
        self._seen_at = 0.0

    @property
    def ready(self) -> bool:
        """Tell whether readiness probes are to succeed.

        A sidecar's do until it accepts no more: nothing but its own application is sent to it, and that may ask.
        """
        return self.phase is Phase.SERVING or (
            self.phase is Phase.LEAVING and self._plan.role is DeploymentRole.SIDECAR
        )

    @property
    def accepting(self) -> bool:
        """Tell whether new clients are let in."""
        return self.phase in (Phase.SERVING, Phase.LEAVING)

    def told(self, what: StopSignal, plan: ShutdownPlan, now: float) -> None:
        """Take a signal at `now` (seconds): the first begins the end as `plan` says, a second one is the end."""
        if self.phase is not Phase.SERVING:
            self._advance(Phase.CLOSING)
            return
        self._plan = plan
        self._seen_at = now
        if what is StopSignal.INTERRUPT:
            self._begin_drain(now)
        elif plan.role is DeploymentRole.SIDECAR:
            self._leave_ends = self._drain_ends = now + plan.drain_seconds
            self._advance(Phase.LEAVING)
        else:
            self._leave_ends = now + plan.pre_drain_seconds
            self._advance(Phase.LEAVING)

    def look(self, clients: int, now: float) -> Phase:
        """Give the phase at `now` (seconds), with so many clients there."""
        if clients:
            self._seen_at = now
        if self.phase is Phase.LEAVING:
            if self._plan.role is DeploymentRole.SIDECAR:
                self._look_after_application(now)
            elif now >= self._leave_ends:
                self._begin_drain(self._leave_ends)
        if self.phase is Phase.DRAINING and (not clients or now >= self._drain_ends):
            self._advance(Phase.CLOSING)
        return self.phase

    def seconds_left(self, now: float) -> float:
        """Give the time until the phase ends by itself, if no client ends it before."""
        ends = self._leave_ends if self.phase is Phase.LEAVING else self._drain_ends
        return max(0.0, ends - now) if self.phase in (Phase.LEAVING, Phase.DRAINING) else 0.0

    def _look_after_application(self, now: float) -> None:
        if now >= self._leave_ends or now - self._seen_at >= QUIET_SECONDS:
            self._advance(Phase.CLOSING)

    def _begin_drain(self, now: float) -> None:
        self._drain_ends = now + self._plan.drain_seconds
        self._advance(Phase.DRAINING)

    def _advance(self, phase: Phase) -> None:
        if _ORDER.index(phase) > _ORDER.index(self.phase):
            self.phase = phase
