"""Numbers of clients: given once, kept by a client that becomes something else, gone with it."""

from proxy.core.registry import Registry


def test_a_number_is_given_once_and_found_again() -> None:
    roll: Registry[str] = Registry()
    for number, name in enumerate("abc", 1):
        roll.add(name, since=float(number))
    roll.remove("b")
    roll.add("d", since=4.0)
    assert roll.numbers() == [1, 3, 4]
    assert roll.find(2) is None
    entry = roll.find(4)
    assert entry is not None
    assert (entry.member, entry.since) == ("d", 4.0)


def test_who_becomes_something_else_keeps_number_and_age() -> None:
    roll: Registry[str] = Registry()
    roll.add("arrival", since=1.0)
    roll.add("other", since=2.0)
    roll.replace("arrival", "client")
    roll.replace("unknown", "nobody")
    entry = roll.find(1)
    assert entry is not None
    assert (entry.member, entry.since) == ("client", 1.0)
    roll.remove("arrival")
    assert len(roll) == 2
    roll.remove("client")
    assert roll.numbers() == [2]


def test_a_page_begins_behind_the_last_number_that_was_seen() -> None:
    roll: Registry[int] = Registry()
    for number in range(1, 6):
        roll.add(number, since=0.0)
    roll.remove(2)
    assert roll.numbers(after=2) == [3, 4, 5]
    assert roll.numbers(after=5) == []
    assert roll.numbers(after=1, most=2) == [3, 4]
    assert (roll.numbers(most=0), roll.last) == ([], 5)
