import random
from collections import Counter

from proxy.core.addresses import host_network
from proxy.core.key_members import KeyMembers, KeyTurns, SiteSizes


def test_the_keys_with_most_are_known_whoever_comes_and_goes() -> None:
    order = random.Random(7)
    books: KeyMembers[str, int] = KeyMembers()
    there: dict[int, str] = {}
    for member in range(2000):
        if there and order.random() < 0.5:
            gone = order.choice(list(there))
            assert books.remove(gone)
            assert not books.remove(gone)
            del there[gone]
        else:
            there[member] = order.choice("abcde")
            books.add(there[member], member)
        of_key = {key: [each for each, own in there.items() if own == key] for key in set(there.values())}
        most = max(map(len, of_key.values()), default=0)
        assert books.sizes.most == most
        assert sorted(map(list, books.largest())) == sorted(each for each in of_key.values() if len(each) == most)
        assert {key: list(books.of(key)) for key in "abcde"} == {key: of_key.get(key, []) for key in "abcde"}
        assert list(books) == list(there)
    for member in there:
        books.remove(member)
    assert not any(
        [books, books.sizes, books.sizes._inside, books.sizes._sites._keys_of, books._members, list(books.largest())]
    )


def test_of_two_equal_keys_the_one_that_had_so_many_first_is_the_first() -> None:
    books: KeyMembers[str, int] = KeyMembers()
    for member, key in enumerate("abba"):
        books.add(key, member)
    assert list(map(list, books.largest())) == [[1, 2], [0, 3]]


def net(site: int, network: int) -> str:
    """Give a /64 network of a customer's /48."""
    return host_network(f"2001:db8:{site:x}:{network:x}::1")


def test_the_networks_of_a_site_count_together_and_then_apart() -> None:
    order = random.Random(7)
    books: KeyMembers[str, int] = KeyMembers()
    there: dict[int, str] = {}
    keys = [net(site, network) for site in range(1, 4) for network in range(3)] + ["192.0.2.1", "192.0.2.2"]
    site_of = {key: key.split("::")[0].rsplit(":", 1)[0] if "/64" in key else key for key in keys}
    site_of |= {net(site, 0): f"2001:db8:{site:x}" for site in range(1, 4)}
    for member in range(2000):
        if there and order.random() < 0.5:
            gone = order.choice(list(there))
            assert books.remove(gone)
            del there[gone]
        else:
            there[member] = order.choice(keys)
            books.add(there[member], member)
        of_key = Counter(there.values())
        of_site = Counter(site_of[key] for key in there.values())
        assert books.sizes.most == max(of_site.values(), default=0)
        assert all(books.sizes[key] == of_site[site_of[key]] for key in keys)
        assert all(books.sizes.inside(key) == of_key[key] for key in keys)
        largest = set(books.sizes.largest())
        for site in {site for site, count in of_site.items() if count == books.sizes.most}:
            inside = {key: count for key, count in of_key.items() if site_of[key] == site}
            assert largest & inside.keys() == {key for key in inside if inside[key] == max(inside.values())}
    for member in list(there):
        books.remove(member)
    assert not any([books, books.sizes, books.sizes._inside, list(books.largest())])


def grown(counts: dict[str, int]) -> SiteSizes[str]:
    found: SiteSizes[str] = SiteSizes()
    for key, count in counts.items():
        for _ in range(count):
            found.grow(key)
    return found


def test_a_site_gives_way_to_another_and_its_largest_network_to_others_of_the_site() -> None:
    books = grown({net(1, number): 2 for number in range(5)} | {net(2, 0): 9, net(2, 1): 3})
    # Of the site with most.
    assert list(books.outweighing("192.0.2.1", 2)) == [net(2, 0)]
    assert list(books.outweighing(net(3, 0), 2)) == [net(2, 0)]
    # No site has twice as much, but a network of the newcomer's own site has.
    assert list(books.outweighing(net(2, 2), 2)) == [net(2, 0)]
    assert list(books.outweighing(net(2, 1), 2)) == [net(2, 0)]
    assert list(books.outweighing(net(1, 9), 1)) == [net(2, 0)]
    assert list(books.outweighing(net(1, 0), 2)) == []


def test_a_network_that_was_deferred_comes_after_the_others_of_its_site() -> None:
    books = grown({net(1, number): 2 for number in range(3)} | {"192.0.2.1": 1})
    books.defer(net(1, 0))
    books.defer("192.0.2.1")
    assert list(books.largest()) == [net(1, 1), net(1, 2), net(1, 0)]


def test_sites_take_turns_and_inside_a_site_its_keys() -> None:
    turns: KeyTurns[str] = KeyTurns()
    for key in (net(1, 0), net(1, 1), net(1, 2), net(2, 0), "192.0.2.1"):
        turns.add(key)
    served = []
    for _ in range(7):
        served.append(turns.next)
        turns.took_turn(turns.next)
    assert served == [net(1, 0), net(2, 0), "192.0.2.1", net(1, 1), net(2, 0), "192.0.2.1", net(1, 2)]
    for key in (net(1, 0), net(1, 0), net(1, 1), net(1, 2), net(2, 0), "192.0.2.1"):
        turns.discard(key)
    assert not len(turns)
    assert not list(turns)
