"""Scenario: tenants of different weight list, look up and ping on connections that last; the report has a line each.

A tenant's weight is its part of the clients (`--namespaces a/x@6,b/y@1`): does the light one wait for the heavy one?
"""

import random

from locust import between

from tests.load.session import Session
from tests.load.shapes import SteadyShape
from tests.load.users import LoadUser, Pinger

__all__ = ["Pinger", "SteadyShape", "TenantUser"]

LISTS_A_SESSION = 3
LOOKUPS_A_LIST = 5


class TenantUser(LoadUser):
    """An application that lists its topics, then looks some of them up."""

    wait_time = between(0.2, 1.0)

    def visit(self, session: Session) -> None:
        """List, look up several at once, ping, and again."""
        for _ in range(LISTS_A_SESSION):
            session.ask_topics_of(self.namespace, self.given.topics, f"GET_TOPICS {self.namespace}")
            session.settle()
            found = random.sample(session.topics, min(LOOKUPS_A_LIST, len(session.topics)))
            for topic in found:
                session.ask_lookup(topic, f"LOOKUP {self.namespace}")
            session.ask_ping("PING beside lookups")
            session.settle()
        session.leave()
