"""What became of every request of a load test, and which promises that breaks.

Rule: a request that was asked ends in exactly one outcome; what ends in none is lost. Knows neither sockets nor Locust.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple


class Outcome(StrEnum):
    """Say how a request ended."""

    ANSWERED = "answered"
    REFUSED = "refused"  # TooManyRequests
    FAILED = "failed"  # any other error of the server
    WRONG = "wrong"  # an answer of another type, or with a content that cannot be
    CLOSED = "closed"  # the peer closed the connection, or there was none
    LOST = "lost"  # no answer in time, on a connection that stayed open
    DROPPED = "dropped"  # the client left before its answer came, and before it was due
    UNASKED = "unasked"  # an answer to no request: a second one, or a foreign request id


_FAILURES: Final = (Outcome.FAILED, Outcome.WRONG, Outcome.CLOSED)


class Exchange(NamedTuple):
    """One request and its end: seconds since it was asked, bytes of its answer, and what was wrong, if anything."""

    name: str
    outcome: Outcome
    seconds: float
    answer_bytes: int = 0
    detail: str = ""


@dataclass(slots=True)
class Books:
    """Count what was asked and how it ended."""

    asked: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)

    @property
    def lost(self) -> int:
        """Count the requests that waited in vain, and any whose end was never booked."""
        ended = self.outcomes.total() - self.outcomes[Outcome.UNASKED]
        return self.outcomes[Outcome.LOST] + self.asked - ended

    @property
    def failure_ratio(self) -> float:
        """Give the part of all requests that failed otherwise than by a refusal or a loss."""
        return sum(self.outcomes[outcome] for outcome in _FAILURES) / max(self.asked, 1)


@dataclass(frozen=True, slots=True)
class Latency:
    """How long PINGs took, and how late the load generator itself was: its own delay is part of what it measures."""

    pings: int
    ping_p99_ms: float
    generator_lag_p99_ms: float


@dataclass(frozen=True, slots=True)
class Promises:
    """What a load test has to show."""

    max_refusals: int
    max_failure_ratio: float
    max_ping_p99_ms: float

    def broken(self, books: Books, latency: Latency, crashes: int) -> list[str]:
        """List the promises that do not hold; `crashes` are exceptions of the load test itself."""
        refused, unasked = books.outcomes[Outcome.REFUSED], books.outcomes[Outcome.UNASKED]
        found = {
            "no request was answered: nothing was shown": not books.outcomes[Outcome.ANSWERED],
            f"lost requests: got {books.lost}, expected 0": books.lost,
            f"answers to no request: got {unasked}, expected 0": unasked,
            f"refusals: got {refused}, expected at most {self.max_refusals}": refused > self.max_refusals,
            f"failure ratio: got {books.failure_ratio:.4f}, expected at most {self.max_failure_ratio:g}": (
                books.failure_ratio > self.max_failure_ratio
            ),
            "no PING was answered: its latency is unknown": not latency.pings,
            f"p99 of PING: got {latency.ping_p99_ms:g} ms, expected at most {self.max_ping_p99_ms:g} ms "
            f"(p99 lag of the load generator: {latency.generator_lag_p99_ms:g} ms)": (
                latency.ping_p99_ms > self.max_ping_p99_ms
            ),
            f"crashes of the load test: got {crashes}, expected 0": crashes,
        }
        return [text for text, is_broken in found.items() if is_broken]

    def report(self, books: Books, latency: Latency, crashes: int) -> dict[str, Any]:
        """Give all figures and the verdict, ready for JSON."""
        broken = self.broken(books, latency, crashes)
        outcomes = {outcome.value: books.outcomes[outcome] for outcome in Outcome} | {"lost": books.lost}
        figures = {"asked": books.asked, **outcomes, "failure_ratio": books.failure_ratio, "crashes": crashes}
        return {"kept": not broken, "broken": broken, **figures, **asdict(latency), "promises": asdict(self)}
