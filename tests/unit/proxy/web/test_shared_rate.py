from random import Random

import pytest

from proxy.core.addresses import host_network
from proxy.web.http.shared_rate import MOST_KEYS, SharedRate


class Clients:
    """Clients of a rate, in steps of a hundredth of a second."""

    def __init__(self, rate: float) -> None:
        self.now = 100.0
        self.rate = SharedRate(rate, self.now)
        self.served: dict[str, int] = {}
        self.refused: dict[str, int] = {}

    def ask(self, key: str) -> bool:
        took = self.rate.take(key, self.now)
        found = self.served if took else self.refused
        found[key] = found.get(key, 0) + 1
        return took

    def flood(self, seconds: float, *keys: str, a_step: int = 5) -> None:
        for _ in range(round(seconds * 100)):
            self.now += 0.01
            for key in keys * a_step:
                self.ask(key)


@pytest.mark.parametrize("rate", [0.1, 1.0, 2.5, 100.0])
def test_the_rate_is_that_of_all_together_and_one_alone_has_it(rate: float) -> None:
    alone = Clients(rate)
    alone.flood(20 / rate, "flood")
    assert 20 <= alone.served["flood"] <= 20 + max(1.0, rate) + max(1.0, rate / 4)
    many = Clients(rate)
    many.flood(20 / rate, "a", "b", "c")
    assert sum(many.served.values()) <= 20 + max(1.0, rate) + max(1.0, rate / 4)


@pytest.mark.threat("http-rate-used-up")
def test_who_asks_for_less_than_its_share_is_never_refused() -> None:
    clients = Clients(100.0)
    for step in range(3000):
        clients.now += 0.01
        for key in ("a", "b", "c") * 3:
            clients.ask(key)
        if not step % 5:
            # 20 a second; the share of each of four is 25, and one of five may still come.
            assert clients.ask("quiet")
    assert sum(clients.served.values()) <= 100 * 30 + 125


def test_a_second_request_above_the_rate_is_refused_until_its_time_has_come() -> None:
    clients = Clients(0.01)
    assert clients.ask("a")
    assert not clients.ask("a")
    assert clients.ask("b")
    assert not clients.ask("b")
    clients.now += 101
    assert clients.ask("b")


def test_the_books_are_bounded_and_forget_who_asks_no_more() -> None:
    clients, order = Clients(1_000_000.0), Random(1)
    for number in range(2 * MOST_KEYS):
        clients.ask(f"{number}-{order.random()}")
    assert len(clients.rate) == MOST_KEYS
    clients.now += 60
    clients.ask("a")
    assert len(clients.rate) == 1


@pytest.mark.threat("many-networks-one-customer")
def test_all_networks_of_a_customer_are_one_key() -> None:
    clients = Clients(10.0)
    networks = [host_network(f"2001:db8:1:{number:x}::1") for number in range(1000)]
    for number in range(1000):
        clients.now += 0.01
        clients.ask(networks[number])
        if number % 100 == 99:
            # A tenth of the rate.
            assert clients.ask(host_network("2001:db8:2::1"))


@pytest.mark.threat("http-rate-used-up")
@pytest.mark.parametrize(("rate", "others"), [(1.0, ()), (10.0, ("192.0.2.1",)), (100.0, ("192.0.2.1",))])
def test_a_network_leaves_its_neighbours_in_a_site_something(rate: float, others: tuple[str, ...]) -> None:
    clients = Clients(rate)
    flood, neighbour = (host_network(f"2001:db8:1:{number}::1") for number in (1, 2))
    clients.flood(10 / rate, flood, *others)
    for _ in range(20):
        # A tenth of the rate; the site has a third of it or more.
        clients.flood(10 / rate, flood, *others)
        assert clients.ask(neighbour)
