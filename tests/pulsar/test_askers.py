"""What askers hold against a proxy: no attempt without an end, no error that clients do not repeat."""

from tests.pulsar.askers import Asked


def test_errors_after_which_clients_ask_again_are_no_fault() -> None:
    asked = Asked(failed=3)
    asked.errors.update({"lookup: ServiceNotReady": 9, "list: TooManyRequests": 2, "connect: ServiceNotReady": 1})
    assert asked.broken() == []


def test_requests_that_failed_are_a_fault_where_none_may_fail() -> None:
    assert Asked(failed=3).broken(failures=True) == ["3 requests failed"]
    assert Asked().broken(failures=True) == []


def test_attempts_without_an_end_and_other_errors_are_faults() -> None:
    asked = Asked(unanswered=2)
    asked.errors.update({"list: UnknownError": 1})
    assert asked.broken() == ["2 attempts with neither an answer nor an end", "list: UnknownError"]
