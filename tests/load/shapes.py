"""How many users there are at any time: a steady number, or a storm.

Rule: a shape ends the test, also when enough requests were made; so Locust's own end by time is not needed.
"""

import argparse
from typing import ClassVar, Final

from locust import LoadTestShape

from tests.load.verdict import load_test

# Users a second; Locust warns above it.
FASTEST_SPAWN_RATE: Final = 100
RAMP_STEPS: Final = 4
CALM_SHARE: Final = 0.1


class _Shape(LoadTestShape):
    abstract: ClassVar[bool] = True
    use_common_options: ClassVar[bool] = True

    def tick(self) -> tuple[int, float] | None:
        """Give users and spawn rate, None at the end."""
        assert self.runner is not None
        test = load_test(self.runner.environment)
        users = None if test.enough else self.users(test.given, float(LoadTestShape.get_run_time(self)))
        return None if users is None else (users, self.rate(test.given))

    def users(self, given: argparse.Namespace, seconds: float) -> int | None:
        """Count the users there shall be so long after the start; None at the end."""
        raise NotImplementedError

    def rate(self, given: argparse.Namespace) -> float:
        """Give the users that may come in a second."""
        return FASTEST_SPAWN_RATE


class SteadyShape(_Shape):
    """`--users` until `--run-time` is over."""

    def users(self, given: argparse.Namespace, seconds: float) -> int | None:
        users: int = given.num_users or 1
        return None if given.run_time and seconds >= given.run_time else users

    def rate(self, given: argparse.Namespace) -> float:
        wanted: float = given.spawn_rate or FASTEST_SPAWN_RATE
        return min(wanted, FASTEST_SPAWN_RATE)


class StormShape(_Shape):
    """Ramp, blow, hold, calm: a tenth of `--users` comes in steps, then all others at once; a tenth stays in the calm.

    The blow is as fast as Locust can be trusted to be.
    """

    def users(self, given: argparse.Namespace, seconds: float) -> int | None:
        peak: int = given.num_users or 1
        calm = max(1, round(peak * CALM_SHARE))
        if seconds < given.ramp_seconds:
            return max(1, calm * (int(RAMP_STEPS * seconds / given.ramp_seconds) + 1) // RAMP_STEPS)
        if seconds < given.ramp_seconds + given.hold_seconds:
            return peak
        return calm if seconds < given.ramp_seconds + given.hold_seconds + given.calm_seconds else None
