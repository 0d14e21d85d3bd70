"""Scenario: clients ask for several lists at once and read them slowly, while a small client wants its PINGs answered.

Slow, but steady: such readers must get all they asked for.
"""

from dataclasses import replace
from typing import Final

from locust import constant
from locust.env import Environment

from tests.load.session import Session
from tests.load.shapes import SteadyShape
from tests.load.users import LoadUser, Pinger

__all__ = ["Pinger", "SlowReader", "SteadyShape"]

# Small enough that what is unread stays with the server, not in this machine's kernel.
RECEIVE_BUFFER_BYTES: Final = 32 * 1024


class SlowReader(LoadUser):
    """A client behind a thin line."""

    wait_time = constant(0.5)

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.habits = replace(
            self.habits,
            receive_buffer_bytes=RECEIVE_BUFFER_BYTES,
            bytes_per_second=self.given.slow_bytes_per_second,
        )

    def visit(self, session: Session) -> None:
        """Ask for all lists first, then read."""
        for _ in range(self.given.slow_requests):
            session.ask_topics_of(self.namespace, self.given.topics, "GET_TOPICS slowly")
        session.leave()
