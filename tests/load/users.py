"""What all users have in common: a session whose exchanges go into the books and into Locust's statistics.

Rule: a user never crashes for what the server does; each way to fail is an exception type of its own in the report.
"""

import time
from contextlib import suppress
from typing import Final

from locust import User, constant, task
from locust.env import Environment

from tests.load.books import Exchange, Outcome
from tests.load.session import Habits, Session, SessionOver
from tests.load.verdict import PING, REQUEST_TYPE, load_test

PINGS_A_SESSION: Final = 50
PING_EVERY_SECONDS: Final = 0.05
_FAILURES: Final = {
    outcome: type(name, (Exception,), {})
    for outcome, name in {
        Outcome.REFUSED: "TooManyRequests",
        Outcome.FAILED: "ServerFailed",
        Outcome.WRONG: "WrongAnswer",
        Outcome.CLOSED: "ConnectionClosed",
        Outcome.LOST: "NoAnswer",
        Outcome.UNASKED: "AnswerToNoRequest",
    }.items()
}


class LoadUser(User):
    """Be one client after the other; a subclass says in `visit` what a client does with its session."""

    abstract = True

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.test = load_test(environment)
        self.given = self.test.given
        self.habits = Habits(self.given.answer_seconds)
        self.namespace = ""

    def on_start(self) -> None:
        """Take the place in the rota that is due."""
        self.namespace = next(self.test.namespaces)

    def visit(self, session: Session) -> None:
        """Do what this kind of user does."""
        raise NotImplementedError

    @task
    def one_session(self) -> None:
        """Connect, do it, and leave."""
        with suppress(SessionOver), Session(self.test.address, self, self.habits) as session:
            self.visit(session)

    # The observer of a session

    def asked(self) -> None:
        """Count a request."""
        self.test.books.asked += 1

    def done(self, exchange: Exchange) -> None:
        """Book a request's end, and tell Locust unless the client itself gave it up."""
        self.test.books.outcomes[exchange.outcome] += 1
        if exchange.outcome is Outcome.DROPPED:
            return
        failure = _FAILURES.get(exchange.outcome)
        self.environment.events.request.fire(
            request_type=REQUEST_TYPE,
            name=exchange.name,
            response_time=exchange.seconds * 1000,
            response_length=exchange.answer_bytes,
            exception=failure(exchange.detail) if failure else None,
            context={},
        )


class Pinger(LoadUser):
    """A small client beside every load: how long does its PING take?"""

    fixed_count = 2
    wait_time = constant(0)

    def visit(self, session: Session) -> None:
        """Ping, a few seconds long; the time that nobody else gets."""
        for _ in range(PINGS_A_SESSION):
            session.ask_ping(PING)
            session.settle()
            time.sleep(PING_EVERY_SECONDS)
        session.leave()
