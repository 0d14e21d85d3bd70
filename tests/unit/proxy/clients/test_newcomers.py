"""At the limit of connections an address that holds all places gives way, whatever it does; those who work, last."""

from collections.abc import Callable
from typing import Any

import pytest

from proxy.clients.crowds import IDLE_FACTOR
from proxy.clients.newcomers import WORK_FACTOR, Newcomers
from proxy.core.addresses import host_network
from proxy.relay.engine import NOT_PAUSED, RelaySnapshot
from proxy.relay.relay_crowds import QUIET_BYTES, QUIET_BYTES_PER_SECOND, QUIET_SECONDS

ATTACKER, SNAT, NEWCOMER = "192.0.2.1", "192.0.2.2", "192.0.2.3"
LATE = 60.0
PLACES = 10_000


class Client:
    """A client in lookup mode that asks for something all the time, or nothing."""

    def __init__(self, idle: bool) -> None:
        self.idle = idle

    def idle_since_asked(self) -> bool:
        return self.idle


class Passing:
    """A relay, and the bytes that it has passed."""

    def __init__(self, moved_bytes: int = 0) -> None:
        self.moved_bytes = moved_bytes

    def snapshot(self) -> RelaySnapshot:
        return RelaySnapshot((self.moved_bytes, 0), (0, 0), (NOT_PAUSED, NOT_PAUSED), 0, False)


class House:
    """All connections of a proxy, of which every place is taken."""

    def __init__(self) -> None:
        self.newcomers: Newcomers[Client] = Newcomers()
        self.address: dict[Any, str] = {}

    def clients(self, address: str, number: int, idle: bool = False) -> list[Client]:
        clients = [Client(idle) for _ in range(number)]
        for client in clients:
            self.address[client] = address
            self.newcomers.crowds.arrived(address)
            self.newcomers.crowds.add(client, address, 0.0)
            self.newcomers.crowds.connected(client, 0.0)
        return clients

    def relays(self, address: str, number: int, known: bool | Callable[[], bool] = False) -> list[Any]:
        relays: list[Any] = [Passing() for _ in range(number)]
        for relay in relays:
            self.address[relay] = address
            self.newcomers.crowds.arrived(address)
            self.newcomers.relays.add(
                relay, host_network(address), known if callable(known) else lambda: bool(known), 0.0
            )
        return relays

    def leaves(self, address: str = NEWCOMER, now: float = LATE) -> Any:
        """End and give who leaves for a newcomer."""
        victim = self.newcomers.victim(address, now, PLACES)
        if victim is not None:
            self.newcomers.crowds.left(self.address.pop(victim))
            if isinstance(victim, Client):
                self.newcomers.crowds.remove(victim)
            else:
                self.newcomers.relays.remove(victim)
        return victim


class TestWhoLeaves:
    def test_a_relay_that_passes_keep_alives_is_quiet_and_one_that_passes_more_is_not(self) -> None:
        house = House()
        works, quiet, *others = house.relays(ATTACKER, 5)
        works.moved_bytes, quiet.moved_bytes = 10_000, QUIET_BYTES + int(QUIET_BYTES_PER_SECOND * LATE)
        assert house.leaves() is quiet
        # Whose traffic has ended is quiet some time later.
        assert [house.leaves(now=LATE + QUIET_SECONDS) for _ in range(3)] == [*others[:2], None]
        house.relays(ATTACKER, 2)
        house.newcomers.relays.remove(others[2])
        assert house.leaves(now=LATE + QUIET_SECONDS) is works

    def test_a_long_silence_saves_up_no_traffic(self) -> None:
        house = House()
        for relay in house.relays(ATTACKER, 8):
            relay.moved_bytes = 1000
        assert house.leaves(now=100_000.0) is None

    def test_those_at_work_leave_when_nobody_else_is_left(self) -> None:
        house = House()
        clients = house.clients(ATTACKER, 10)
        strangers = house.relays(ATTACKER, 10)
        known = house.relays(ATTACKER, 10, known=True)
        for relay in (*strangers, *known):
            relay.moved_bytes = 10_000
        left = [house.leaves() for _ in range(6)]
        assert set(left[:2]) < set(clients)
        assert set(left[2:4]) < set(strangers)
        assert set(left[4:]) < set(known)
        # No kind has far more than a newcomer who has nothing.
        assert house.leaves() is None

    def test_a_relay_to_a_broker_that_a_lookup_names_later_is_no_strangers(self) -> None:
        house = House()
        named: set[str] = set()
        relays = house.relays(SNAT, 20, known=lambda: bool(named))
        strangers = house.relays(ATTACKER, 19)
        named.add("broker")
        assert [house.leaves(), house.leaves()] == strangers[:2]
        assert all(relay in house.address for relay in relays)


class TestForWhom:
    def test_relays_of_a_crowd_give_way_until_the_others_have_half_as_many(self) -> None:
        house = House()
        house.relays(ATTACKER, 30)
        came = 0
        while house.leaves() is not None:
            house.relays(NEWCOMER, 1, known=True)
            came += 1
        assert came == 30 // (IDLE_FACTOR + 1)

    def test_nobody_leaves_for_the_address_that_has_most(self) -> None:
        house = House()
        house.relays(ATTACKER, 30)
        house.relays(SNAT, 29, known=True)
        assert house.leaves(ATTACKER) is None
        assert house.leaves(SNAT) is None

    @pytest.mark.threat("newcomers-end-workers")
    def test_honest_relays_behind_a_snat_stay_unless_the_newcomer_has_next_to_nothing(self) -> None:
        house = House()
        house.relays(SNAT, 9000, known=True)
        house.relays(NEWCOMER, 9000 // WORK_FACTOR, known=True)
        assert house.leaves() is None
        assert house.leaves("192.0.2.4") is not None

    @pytest.mark.threat("newcomers-end-workers")
    def test_those_who_come_and_go_end_few_who_work(self) -> None:
        house = House()
        house.relays(SNAT, 5000, known=True)
        # A new address for each, a thousand a second.
        ended = sum(house.leaves(f"198.51.{n // 250}.{n % 250}", LATE + n / 1000) is not None for n in range(10_000))
        # A thousandth of the places a second, and what was saved up.
        assert 190 <= ended <= 200

    def test_a_place_may_be_free_for_an_unknown_address_whoever_holds_all(self) -> None:
        house = House()
        found = [house.newcomers.may_come]
        for number in (WORK_FACTOR, 1):
            house.relays(SNAT, number, known=True)
            found.append(house.newcomers.may_come)
        assert found == [False, False, True]
        strangers = House()
        strangers.relays(ATTACKER, IDLE_FACTOR + 1)
        assert strangers.newcomers.may_come


class TestSites:
    """A customer with a /48 of IPv6 has 65,536 networks."""

    @pytest.mark.threat("many-networks-one-customer")
    def test_relays_and_workers_of_a_customer_with_many_networks_leave_for_another_customer(self) -> None:
        house = House()
        strangers = [each for number in range(30) for each in house.relays(f"2001:db8:1:{number:x}::1", 1)]
        assert house.leaves("2001:db8:2::1") in strangers
        assert house.leaves("2001:db8:1:ffff::1") is None
        for relay in strangers:
            relay.moved_bytes = 10_000
        # Each of the others was found at work; the youngest leaves.
        assert house.leaves("2001:db8:3::1") in strangers
        known = House()
        relays = [each for number in range(30) for each in known.relays(f"2001:db8:1:{number:x}::1", 1, known=True)]
        assert known.leaves("2001:db8:2::1") in relays
        clients = House()
        workers = [each for number in range(30) for each in clients.clients(f"2001:db8:1:{number:x}::1", 1)]
        assert clients.leaves("2001:db8:2::1") in workers

    def test_quiet_relays_are_found_in_any_network_of_the_site(self) -> None:
        house = House()
        relays = [each for number in range(20) for each in house.relays(f"2001:db8:1:{number:x}::1", 1)]
        for relay in relays[:-1]:
            relay.moved_bytes = 10_000
        assert house.leaves() is relays[-1]
