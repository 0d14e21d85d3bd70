"""How many users there are at any time: a steady number, or a storm.

Rule: a shape ends the test, also when enough requests were made; so Locust's own end by time is not needed.
"""

from typing import ClassVar, Final

from locust import LoadTestShape

from tests.load.verdict import LoadTest, load_test

# Users a second; Locust warns above it.
FASTEST_SPAWN_RATE: Final = 100


class _Shape(LoadTestShape):
    abstract: ClassVar[bool] = True
    use_common_options: ClassVar[bool] = True

    @property
    def test(self) -> LoadTest:
        """Give the load test that is shaped."""
        assert self.runner is not None
        return load_test(self.runner.environment)

    @property
    def seconds(self) -> float:
        """Give the seconds since the test began."""
        return float(LoadTestShape.get_run_time(self))


class SteadyShape(_Shape):
    """`--users` until `--run-time` is over."""

    def tick(self) -> tuple[int, float] | None:
        """Give users and spawn rate, None at the end."""
        assert self.runner is not None
        given = self.runner.environment.parsed_options
        assert given is not None
        if self.test.enough or (given.run_time and self.seconds >= given.run_time):
            return None
        users = given.num_users or 1
        return users, min(given.spawn_rate or users, FASTEST_SPAWN_RATE)


class StormShape(_Shape):
    """Ramp, blow, hold, calm; `--users` is the peak, and the blow is as fast as Locust can be trusted to be."""

    def tick(self) -> tuple[int, float] | None:
        """Give users and spawn rate, None at the end."""
        clients = None if self.test.enough else self.test.options.storm.clients_at(self.seconds)
        return None if clients is None else (clients, FASTEST_SPAWN_RATE)
