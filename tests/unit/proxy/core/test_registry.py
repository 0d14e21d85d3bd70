"""Numbers of clients: given once, kept by a client that becomes something else, gone with it."""

from proxy.core.registry import Registry


def test_a_number_is_given_once_and_found_again() -> None:
    registry: Registry[str] = Registry()
    for number, name in enumerate("abc", 1):
        registry.add(name, since=float(number))
    registry.remove("b")
    registry.add("d", since=4.0)
    assert registry.ids() == [1, 3, 4]
    assert registry.find(2) is None
    entry = registry.find(4)
    assert entry is not None
    assert (entry.member, entry.since) == ("d", 4.0)


def test_who_becomes_something_else_keeps_number_and_age() -> None:
    registry: Registry[str] = Registry()
    registry.add("arrival", since=1.0)
    registry.add("other", since=2.0)
    registry.replace("arrival", "client")
    registry.replace("unknown", "nobody")
    entry = registry.find(1)
    assert entry is not None
    assert (entry.member, entry.since) == ("client", 1.0)
    registry.remove("arrival")
    assert len(registry) == 2
    registry.remove("client")
    assert registry.ids() == [2]


def test_a_page_begins_behind_the_last_number_that_was_seen() -> None:
    registry: Registry[int] = Registry()
    for number in range(1, 6):
        registry.add(number, since=0.0)
    registry.remove(2)
    assert registry.ids(after=2) == [3, 4, 5]
    assert registry.ids(after=5) == []
    assert registry.ids(after=1, most=2) == [3, 4]
    assert (registry.ids(most=0), registry.last_id) == ([], 5)
