import random
from collections import Counter

from proxy.core.addresses import host_network
from proxy.core.key_members import KeyMembers


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
            assert not books.remove(gone)
            del there[gone]
        else:
            there[member] = order.choice(keys)
            books.add(there[member], member)
        of_key = Counter(there.values())
        of_site = Counter(site_of[key] for key in there.values())
        assert (books.sizes.most, len(books.sizes)) == (max(of_site.values(), default=0), len(of_site))
        assert all(books.sizes[key] == of_site[site_of[key]] for key in keys)
        assert all(books.sizes.inside(key) == of_key[key] for key in keys)
        assert list(books) == list(there)
        assert all(list(books.of(key)) == [each for each, own in there.items() if own == key] for key in keys)
        largest = set(books.sizes.largest())
        for site in {site for site, count in of_site.items() if count == books.sizes.most}:
            inside = {key: count for key, count in of_key.items() if site_of[key] == site}
            assert largest & inside.keys() == {key for key in inside if inside[key] == max(inside.values())}
    for member in list(there):
        books.remove(member)
    assert not any([books, books.sizes, list(books.largest())])
