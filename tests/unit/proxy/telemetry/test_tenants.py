from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from proxy.telemetry.tenants import MOST_TENANTS, OTHERS, TURN_SECONDS, TenantTracker


def lists(book: TenantTracker) -> dict[str, int]:
    return {name: numbers.lists for name, numbers in book.rows()}


def ask(book: TenantTracker, tenant: str, times: int) -> None:
    for _ in range(times):
        book.asked(f"{tenant}/ns")


def test_namespaces_of_one_tenant_are_counted_together() -> None:
    book = TenantTracker()
    book.asked("a/one")
    book.asked("a/two")
    book.sent("a/two", 10)
    book.refused("a/one")
    (row, others) = book.rows()
    assert (row[0], row[1].lists, row[1].sent_bytes, row[1].refusals) == ("a", 2, 10, 1)
    assert others[1].lists == 0


def test_who_finds_no_place_is_one_of_the_others() -> None:
    book = TenantTracker(most=2)
    for tenant in ("a", "b", "c", "d"):
        ask(book, tenant, 1)
        book.sent(f"{tenant}/ns", 5)
        book.refused(f"{tenant}/ns")
    assert lists(book) == {"a": 1, "b": 1, OTHERS: 2}
    assert {name: (n.sent_bytes, n.refusals) for name, n in book.rows()}[OTHERS] == (10, 2)


def test_a_heavy_newcomer_has_the_place_of_the_lightest_and_begins_at_zero() -> None:
    book = TenantTracker(most=2)
    ask(book, "heavy", 50)
    ask(book, "light", 2)
    ask(book, "new", 20)
    book.turn(TURN_SECONDS)
    assert lists(book) == {"heavy": 50, "new": 0, OTHERS: 20}
    ask(book, "new", 3)
    ask(book, "light", 1)
    assert lists(book) == {"heavy": 50, "new": 3, OTHERS: 21}


def test_tenants_that_do_much_the_same_do_not_take_turns() -> None:
    book = TenantTracker(most=1)
    for minute in range(1, 10):
        ask(book, "a", 10)
        ask(book, "b", 15)
        book.turn(minute * TURN_SECONDS)
    assert lists(book) == {"a": 90, OTHERS: 135}


def test_a_tenant_of_the_past_gives_its_place_to_a_modest_one_of_today() -> None:
    book = TenantTracker(most=1)
    ask(book, "past", 1000)
    for minute in range(1, 20):
        ask(book, "today", 10)
        book.turn(minute * TURN_SECONDS)
    assert "today" in lists(book)


def test_a_tenant_that_calls_itself_others_is_one_of_them() -> None:
    book = TenantTracker()
    ask(book, OTHERS, 3)
    assert lists(book) == {OTHERS: 3}


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 30)), max_size=200))
def test_memory_is_bounded_and_no_count_is_lost_while_nobody_moves(calls: Sequence[tuple[int, int]]) -> None:
    book = TenantTracker()
    for tenant, times in calls:
        ask(book, f"t{tenant}", times)
    assert len(lists(book)) <= MOST_TENANTS + 1
    assert sum(lists(book).values()) == sum(times for _, times in calls)
    book.turn(TURN_SECONDS)
    assert len(lists(book)) <= MOST_TENANTS + 1
