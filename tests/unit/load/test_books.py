"""A load test's books and promises: every request has one end, and each way to break a promise is named."""

from collections import Counter

import pytest

from tests.load.books import Books, Latency, Outcome, Promises

STRICT = Promises(max_refusals=0, max_failure_ratio=0.0, max_ping_p99_ms=20.0)
QUICK = Latency(pings=100, ping_p99_ms=20.0, generator_lag_p99_ms=3.0)


def books(asked: int, **outcomes: int) -> Books:
    return Books(asked, Counter({Outcome(name): count for name, count in outcomes.items()}))


def test_answered_and_dropped_requests_keep_every_promise() -> None:
    assert STRICT.broken(books(10, answered=9, dropped=1), QUICK, crashes=0) == []


@pytest.mark.parametrize(
    ("seen", "broken"),
    [
        (books(10, answered=9, refused=1), "refusals: got 1, expected at most 0"),
        (books(10, answered=9, lost=1), "lost requests: got 1, expected 0"),
        (books(10, answered=9), "lost requests: got 1, expected 0"),
        (books(10, answered=10, unasked=1), "answers to no request: got 1, expected 0"),
        (books(10, answered=9, wrong=1), "failure ratio: got 0.1000, expected at most 0"),
        (books(10, answered=8, closed=1, failed=1), "failure ratio: got 0.2000, expected at most 0"),
        (books(10, dropped=10), "no request was answered: nothing was shown"),
    ],
)
def test_each_other_end_breaks_one_promise(seen: Books, broken: str) -> None:
    assert STRICT.broken(seen, QUICK, crashes=0) == [broken]


def test_slow_pings_break_the_promise_and_tell_the_generators_own_lag() -> None:
    latency = Latency(pings=100, ping_p99_ms=21.0, generator_lag_p99_ms=3.0)
    assert STRICT.broken(books(1, answered=1), latency, crashes=0) == [
        "p99 of PING: got 21 ms, expected at most 20 ms (p99 lag of the load generator: 3 ms)"
    ]


def test_unknown_latency_and_crashes_break_promises() -> None:
    assert STRICT.broken(books(1, answered=1), Latency(0, 0.0, 0.0), crashes=2) == [
        "no PING was answered: its latency is unknown",
        "crashes of the load test: got 2, expected 0",
    ]


def test_what_is_allowed_is_not_broken() -> None:
    lenient = Promises(max_refusals=2, max_failure_ratio=0.1, max_ping_p99_ms=20.0)
    assert lenient.broken(books(10, answered=7, refused=2, closed=1), QUICK, crashes=0) == []


def test_report_holds_every_outcome_and_the_verdict() -> None:
    report = STRICT.report(books(10, answered=8, refused=1), QUICK, crashes=0)
    assert (report["kept"], report["asked"], report["answered"], report["refused"], report["lost"]) == (
        False, 10, 8, 1, 1,
    )  # fmt: skip
    assert set(Outcome) < set(report)
