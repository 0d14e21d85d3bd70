"""Who ends for a newcomer among the connections whose PROXY header is awaited."""

from functools import partial

import pytest

from proxy.core.counters import Counters
from proxy.core.errors import DisconnectCause
from proxy.net.proxy_headers import SILENT_SECONDS, AwaitedHeader, HeaderWaits
from tests.support.proxies.counted import counted


class Waits:
    """Connections that are accepted a tenth of a second after one another."""

    def __init__(self, *addresses: str) -> None:
        self.counters = Counters()
        self.waits = HeaderWaits(self.counters)
        self.ended: list[str] = []
        self.now = 0.0
        for number, address in enumerate(addresses):
            self.now = number / 10
            self.add(address, f"{address} {number}")

    def add(self, address: str, name: str) -> None:
        awaited = AwaitedHeader(self.now)
        awaited.cancel = partial(self.ended.append, name)
        self.waits.add(address, awaited)

    def come(self, address: str) -> str:
        """Have a newcomer of an address come; return who ends, or nothing if it is the newcomer."""
        before = len(self.waits)
        if not self.waits.end_for(address, self.now):
            assert len(self.waits) == before
            return ""
        assert counted(self.counters, "client_awaited_headers") == len(self.waits) == before - 1
        return self.ended[-1]


@pytest.mark.threat("silent-before-proxy-header")
def test_the_oldest_of_the_address_with_most_ends_for_one_of_another_at_once() -> None:
    waits = Waits("192.0.2.2", *["192.0.2.1"] * 3)
    assert [waits.come(address) for address in ("192.0.2.3", "192.0.2.2")] == ["192.0.2.1 1", ""]
    assert counted(waits.counters, "disconnects", DisconnectCause.CONNECTION_LIMIT) == 1


def test_one_of_the_same_address_ends_when_it_was_silent_for_a_while_only() -> None:
    waits = Waits("192.0.2.2", *["192.0.2.1"] * 3)
    assert waits.come("192.0.2.1") == ""
    waits.now = 0.1 + SILENT_SECONDS
    assert waits.come("192.0.2.1") == "192.0.2.1 1"
    assert waits.come("192.0.2.1") == ""


@pytest.mark.threat("silent-before-proxy-header")
def test_who_comes_again_and_again_ends_nobody_of_another_address() -> None:
    waits = Waits("192.0.2.2", *["192.0.2.1"] * 3)
    for number in range(20):
        waits.now += 1.0
        assert waits.come("192.0.2.1").startswith("192.0.2.1 ")
        waits.add("192.0.2.1", f"192.0.2.1 again {number}")


def test_a_customer_with_a_connection_for_each_of_its_networks_gives_way() -> None:
    waits = Waits("192.0.2.2", *[f"2001:db8:1:{number:x}::1" for number in range(4)])
    assert waits.come("192.0.2.3").startswith("2001:db8:1:")
    assert waits.come("2001:db8:1:ffff::1") == ""


@pytest.mark.parametrize("address", ["192.0.2.1", "unix:1000"])
def test_where_nobody_waits_the_newcomer_has_to_go(address: str) -> None:
    assert Waits().come(address) == ""
