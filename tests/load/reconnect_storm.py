"""Scenario: clients connect together, ask for all topics of their namespace, leave, and come again with the next gust.

Some leave before their answer is there: nobody may feel that.
"""

import random
import time

from tests.load.session import Session
from tests.load.shapes import StormShape
from tests.load.users import LoadUser, Pinger

__all__ = ["Pinger", "StormShape", "StormUser"]


class StormUser(LoadUser):
    """A pattern consumer whose network comes and goes."""

    def wait_time(self) -> float:
        """Wait for the next gust, with all others."""
        interval: float = self.given.gust_seconds
        return interval - time.monotonic() % interval

    def visit(self, session: Session) -> None:
        """Ask, and stay for the answer or not."""
        session.ask_topics_of(self.namespace, self.given.topics)
        if random.random() < self.given.drop_share:
            session.drop()
        else:
            session.leave()
