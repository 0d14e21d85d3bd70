"""The shape of a storm: a ramp, the blow, a hold and a calm. Knows time only as a number."""

from dataclasses import dataclass
from typing import Final

RAMP_STEPS: Final = 4
CALM_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class StormPlan:
    """`peak` clients at most; a tenth of them comes in steps, then all others at once; a tenth stays in the calm."""

    peak: int
    ramp_seconds: float
    hold_seconds: float
    calm_seconds: float

    @property
    def calm_clients(self) -> int:
        """Count the clients outside the storm, one or more."""
        return max(1, round(self.peak * CALM_SHARE))

    def clients_at(self, seconds: float) -> int | None:
        """Count the clients there shall be so long after the start; None when the storm is over."""
        if seconds < self.ramp_seconds:
            step = int(RAMP_STEPS * seconds / self.ramp_seconds) + 1
            return max(1, self.calm_clients * step // RAMP_STEPS)
        if seconds < self.ramp_seconds + self.hold_seconds:
            return self.peak
        if seconds < self.ramp_seconds + self.hold_seconds + self.calm_seconds:
            return self.calm_clients
        return None


def seconds_to_gust(now: float, interval_seconds: float) -> float:
    """Compute the wait until the next gust: the moments at which all clients reconnect together."""
    return interval_seconds - now % interval_seconds
