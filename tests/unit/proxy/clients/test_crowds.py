"""At the limit of connections a crowd gives way to those who have far less, and nobody else does."""

import random
from collections import Counter

import pytest

from proxy.clients.crowds import CONNECT_SECONDS, IDLE_SECONDS, LOOKS, Crowds

CROWD, OTHER = "192.0.2.1", "192.0.2.2"
LATE = CONNECT_SECONDS + IDLE_SECONDS


class Member:
    """A client that is idle, or not."""

    def __init__(self, idle: bool = True) -> None:
        self.idle = idle
        self.looks = 0

    def idle_since_asked(self) -> bool:
        self.looks += 1
        return self.idle


def filled(crowds: Crowds[Member], address: str, members: list[Member], connected: bool = False) -> list[Member]:
    for member in members:
        crowds.arrived(address)
        crowds.add(member, address, 0.0)
        if connected:
            crowds.connected(member, 0.0)
    return members


class TestWhoLeaves:
    def test_who_may_still_send_its_connect_stays(self) -> None:
        crowds: Crowds[Member] = Crowds()
        members = filled(crowds, CROWD, [Member() for _ in range(5)])
        assert crowds.victim(OTHER, CONNECT_SECONDS / 2) is None
        assert crowds.victim(OTHER, CONNECT_SECONDS) is members[0]

    def test_a_silent_client_leaves_before_an_idle_one(self) -> None:
        crowds: Crowds[Member] = Crowds()
        filled(crowds, CROWD, [Member() for _ in range(4)], connected=True)
        (silent,) = filled(crowds, CROWD, [Member()])
        assert crowds.victim(OTHER, LATE) is silent

    def test_a_client_whose_credentials_are_checked_leaves_behind_silent_and_idle_ones(self) -> None:
        crowds: Crowds[Member] = Crowds()
        checked, at_work = filled(crowds, CROWD, [Member() for _ in range(2)])
        crowds.checked(checked, 0.0)
        (idle,) = filled(crowds, CROWD, [Member()], connected=True)
        (silent,) = filled(crowds, CROWD, [Member()])
        crowds.connected(at_work, 0.0)
        at_work.idle = False
        for member in (silent, idle):
            assert crowds.victim(OTHER, LATE) is member
            crowds.remove(member)
        filled(crowds, CROWD, [Member(idle=False)], connected=True)
        assert crowds.victim(OTHER, LATE) is checked
        crowds.connected(checked, LATE)
        assert crowds.victim(OTHER, LATE) is None

    def test_an_idle_client_leaves_and_one_that_asks_stays(self) -> None:
        crowds: Crowds[Member] = Crowds()
        asking, idle, next_idle, _ = filled(
            crowds, CROWD, [Member(idle=False), *(Member() for _ in range(3))], connected=True
        )
        assert crowds.victim(OTHER, IDLE_SECONDS / 2) is None
        assert crowds.victim(OTHER, LATE) is idle
        crowds.remove(idle)
        # Found at work: its time begins anew.
        asking.idle = True
        assert crowds.victim(OTHER, LATE) is next_idle

    def test_a_newcomer_has_few_connections_looked_at(self) -> None:
        crowds: Crowds[Member] = Crowds()
        members = filled(crowds, CROWD, [Member(idle=False) for _ in range(5 * LOOKS)], connected=True)
        assert crowds.victim(OTHER, LATE) is None
        assert sum(member.looks for member in members) == LOOKS


class TestForWhom:
    def test_nobody_leaves_for_a_client_of_the_crowd_or_of_a_nearly_equal_one(self) -> None:
        crowds: Crowds[Member] = Crowds()
        filled(crowds, CROWD, [Member() for _ in range(9)])
        filled(crowds, OTHER, [Member() for _ in range(4)])
        assert crowds.victim(CROWD, LATE) is None
        assert crowds.victim(OTHER, LATE) is None
        assert crowds.victim("192.0.2.3", LATE) is not None

    def test_a_network_of_ipv6_is_one_address(self) -> None:
        crowds: Crowds[Member] = Crowds()
        for number in range(9):
            filled(crowds, f"2001:db8::{number}", [Member()])
        assert crowds.gives_way(OTHER)
        assert not crowds.gives_way("2001:db8::ffff")

    @pytest.mark.threat("neighbours-in-a-site")
    def test_a_network_with_most_of_a_site_gives_way_to_its_neighbours(self) -> None:
        crowds: Crowds[Member] = Crowds()
        (oldest, *_) = filled(crowds, "2001:db8:1:1::1", [Member() for _ in range(9)])
        filled(crowds, "192.0.2.9", [Member() for _ in range(9)])
        assert crowds.victim("2001:db8:1:2::1", LATE) is oldest
        assert crowds.victim("2001:db8:1:1::2", LATE) is None


def test_the_largest_crowd_gives_way_whoever_comes_and_goes() -> None:
    order = random.Random(7)
    crowds: Crowds[Member] = Crowds()
    there: dict[Member, str] = {}

    def leave(member: Member) -> None:
        crowds.remove(member)
        crowds.left(there.pop(member))

    for _ in range(2000):
        if there and order.random() < 0.5:
            leave(order.choice(list(there)))
        else:
            (member,) = filled(crowds, address := f"192.0.2.{order.randrange(5)}", [Member()])
            there[member] = address
            if order.random() < 0.5:
                crowds.connected(member, 0.0)
        sizes = Counter(there.values())
        assert crowds.most == max(sizes.values(), default=0)
        victim = crowds.victim("198.51.100.1", LATE)
        assert victim is None or sizes[there[victim]] == crowds.most
    for member in list(there):
        leave(member)
    assert (crowds.most, crowds.gives_way(None)) == (0, False)
