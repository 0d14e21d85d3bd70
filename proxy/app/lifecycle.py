"""The phases of a shutdown: their order, their duration, and the events that end a phase early.

Rule: no I/O and no clock. The caller reports signals, the time and the number of clients, and gets the current phase,
which `proxy.cli.serve` carries out. A gateway fails its readiness probe at once, but serves and accepts for a while,
because load balancers notice late; then it drains. A sidecar shares its pod with the only application that uses it.
The application stops too and may still connect, so a sidecar serves as before until no client is left.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, Self

from proxy.config.config import Config

# Time without clients after which a sidecar's application counts as gone: it may be about to open a new connection.
QUIET_SECONDS: Final = 1.0


class DeploymentRole(StrEnum):
    """The deployment of the proxy (`proxyRole`): before a cluster, or beside an application."""

    GATEWAY = "gateway"
    SIDECAR = "sidecar"


class StopSignal(Enum):
    """A signal to stop: from an orchestrator, from somebody who waits at a terminal, or from the process that has taken
    the listening sockets over.
    """

    TERMINATE = "terminate"
    INTERRUPT = "interrupt"
    HAND_OVER = "hand over"


class Phase(StrEnum):
    """A phase of the proxy's life; only an undo goes back, to SERVING."""

    SERVING = "serving"
    LEAVING = "leaving"
    DRAINING = "draining"
    CLOSING = "closing"


_ORDER: Final = tuple(Phase)


@dataclass(frozen=True, slots=True)
class ShutdownPlan:
    """The times of a shutdown; `drain_seconds` is the whole time of a sidecar."""

    role: DeploymentRole
    pre_drain_seconds: float
    drain_seconds: float

    @classmethod
    def of(cls, config: Config) -> Self:
        return cls(
            DeploymentRole(config.proxy_role),
            config.seconds(Config.shutdown_pre_drain_millis),
            config.seconds(Config.shutdown_drain_millis),
        )

    @property
    def longest_seconds(self) -> float:
        """The time after which everything is closed, whatever clients do."""
        return self.drain_seconds + (self.pre_drain_seconds if self.role is DeploymentRole.GATEWAY else 0.0)


class Shutdown:
    """The shutdown of a proxy."""

    def __init__(self) -> None:
        self.phase = Phase.SERVING
        self._plan = ShutdownPlan(DeploymentRole.GATEWAY, 0.0, 0.0)
        self._leave_ends = 0.0
        self._drain_ends = 0.0
        self._seen_at = 0.0
        self._handed_over = False

    @property
    def ready(self) -> bool:
        """Whether readiness probes succeed.

        A sidecar stays ready as long as it accepts: only its own application connects to it, and may check readiness.
        After a hand-over the address is served all the time, whichever process a probe's connection still leads to.
        """
        return (
            self._handed_over
            or self.phase is Phase.SERVING
            or (self.phase is Phase.LEAVING and self._plan.role is DeploymentRole.SIDECAR)
        )

    @property
    def accepting(self) -> bool:
        """Whether new clients are accepted."""
        return self.phase in (Phase.SERVING, Phase.LEAVING)

    def signalled(self, cause: StopSignal, plan: ShutdownPlan, now: float) -> None:
        """Called at a signal: the first begins the shutdown as planned, the second closes everything at once."""
        if self.phase is not Phase.SERVING:
            self._advance(Phase.CLOSING)
            return
        self._plan = plan
        self._seen_at = now
        self._handed_over = cause is StopSignal.HAND_OVER
        if cause is not StopSignal.TERMINATE:
            self._begin_drain(now)
        elif plan.role is DeploymentRole.SIDECAR:
            self._leave_ends = self._drain_ends = now + plan.drain_seconds
            self._advance(Phase.LEAVING)
        else:
            self._leave_ends = now + plan.pre_drain_seconds
            self._advance(Phase.LEAVING)

    def undone(self) -> None:
        """Serve as before: a drain that is not over was called off."""
        if self.phase is not Phase.CLOSING:
            self.phase = Phase.SERVING

    def update(self, clients: int, now: float) -> Phase:
        """Advance to the phase at `now`, with this number of clients, and return the phase."""
        if clients:
            self._seen_at = now
        if self.phase is Phase.LEAVING:
            if self._plan.role is DeploymentRole.SIDECAR:
                self._close_when_quiet(now)
            elif now >= self._leave_ends:
                self._begin_drain(self._leave_ends)
        if self.phase is Phase.DRAINING and (not clients or now >= self._drain_ends):
            self._advance(Phase.CLOSING)
        return self.phase

    def seconds_left(self, now: float) -> float:
        """Return the time until the phase ends, unless clients leave before."""
        ends = self._leave_ends if self.phase is Phase.LEAVING else self._drain_ends
        return max(0.0, ends - now) if self.phase in (Phase.LEAVING, Phase.DRAINING) else 0.0

    def _close_when_quiet(self, now: float) -> None:
        if now >= self._leave_ends or now - self._seen_at >= QUIET_SECONDS:
            self._advance(Phase.CLOSING)

    def _begin_drain(self, now: float) -> None:
        self._drain_ends = now + self._plan.drain_seconds
        self._advance(Phase.DRAINING)

    def _advance(self, phase: Phase) -> None:
        if _ORDER.index(phase) > _ORDER.index(self.phase):
            self.phase = phase
