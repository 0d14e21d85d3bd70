"""Choosing brokers over time: looks at those that are down, requests that wait for one, in virtual time."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from proxy.brokers.discovery import Brokers, BrokerSettings
from proxy.brokers.members import LONGEST_PAUSE_SECONDS, MOST_LOOKS
from proxy.brokers.resolver import CachingResolver
from proxy.brokers.target import BrokerAddress
from proxy.core.counters import Counters
from proxy.core.errors import BrokerUnavailable, BrokerUnreachable, NoSocket
from tests.support.brokers.played import crash
from tests.support.cores import core_of
from tests.support.loops.loops import virtually
from tests.support.proxies.counted import counted_by

A, B = BrokerAddress("192.0.2.1", 6650), BrokerAddress("192.0.2.2", 6650)


class Street:
    """Brokers that a dialer reaches or not; `looks` are the times at which each was tried."""

    def __init__(self, *hosts: str, idle: float = 0.0) -> None:
        self.loop = asyncio.get_running_loop()
        self.down: set[str] = set()
        self.silent: set[str] = set()
        # What a look at a broker that is not down comes to.
        self.fault: BrokerUnavailable | None = None
        self.looks: list[tuple[float, str]] = []
        self.counters = Counters()
        self.resolved: dict[str, list[str]] = {}
        core = core_of(counters=self.counters, clock=self.loop.time)
        names = CachingResolver(self.loop, 30.0, 1, crash, core.loop_budget, self._ask)
        settings = BrokerSettings(tuple((host, 6650) for host in hosts), False, 30.0, idle_seconds=idle)
        self.brokers = Brokers(core, settings, names, cast(Any, self))

    async def open(self, broker: BrokerAddress, addresses: Sequence[str], seconds: float) -> socket.socket:
        """Stand in for the dialer."""
        self.looks.append((self.loop.time(), addresses[0]))
        if addresses[0] in self.silent:
            await asyncio.sleep(seconds)
        if addresses[0] in self.down | self.silent:
            raise BrokerUnreachable(f"cannot connect to broker {broker}: connection refused")
        return socket.socket()

    timeout_seconds = 10.0

    async def look(self, broker: BrokerAddress, addresses: Sequence[str]) -> None:
        """Stand in for the dialer's look at a broker that is not known to be down."""
        if self.fault is not None:
            raise self.fault
        (await self.open(broker, addresses, self.timeout_seconds)).close()

    async def _ask(self, name: str) -> list[str]:
        return self.resolved[name]

    def fails(self, *brokers: BrokerAddress) -> None:
        for broker in brokers:
            self.down.add(broker.host)
            error = f"cannot connect to broker {broker}: connection refused"
            self.brokers.failed(broker, error, answers_tcp=False)

    async def returned(self, broker: BrokerAddress) -> None:
        """Wait until a broker can be used again."""
        for _ in range(1000):
            if any(row["state"] != "down" for row in self.brokers.shown() if row["broker"] == str(broker)):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(self.brokers.shown())


@asynccontextmanager
async def street_of(
    *hosts: str, idle: float = 0.0, down: Set[str] = frozenset(), silent: Set[str] = frozenset()
) -> AsyncIterator[Street]:
    street = Street(*hosts, idle=idle)
    street.down |= down
    street.silent |= silent
    street.brokers.start()
    yield street
    await street.brokers.close()
    assert not counted_by(street.counters, "internal_errors")


@virtually(street_of, A.host, B.host)
async def test_a_broker_is_used_again_within_a_second_of_its_return_however_long_it_was_away(street: Street) -> None:
    street.fails(A)
    for away in (0.01, 1.0, 60.0):
        await asyncio.sleep(away)
        street.down.clear()
        back = street.loop.time()
        await street.returned(A)
        assert street.loop.time() - back <= LONGEST_PAUSE_SECONDS + 0.02
        street.fails(A)


@virtually(street_of, A.host)
async def test_a_broker_that_is_down_is_looked_at_at_its_pace_whoever_asks(street: Street) -> None:
    street.fails(A)
    began = street.loop.time()
    async with asyncio.TaskGroup() as group:

        async def ask() -> None:
            for _ in range(50):
                with pytest.raises(BrokerUnavailable):
                    await street.brokers.pick()

        for _ in range(100):
            group.create_task(ask())
    seconds = street.loop.time() - began
    assert len(street.looks) <= 5 + seconds / (0.75 * LONGEST_PAUSE_SECONDS)


@virtually(street_of, A.host, B.host)
async def test_a_request_that_finds_no_broker_waits_for_the_one_that_comes_back(street: Street) -> None:
    street.fails(A, B)
    await asyncio.sleep(10)
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(street.brokers.pick()) for _ in range(20)]
        await asyncio.sleep(0)
        street.down.discard(B.host)
    assert {task.result() for task in waiting} == {B}


@virtually(street_of, A.host, B.host)
async def test_a_request_that_finds_no_broker_is_told_after_one_look_at_each(street: Street) -> None:
    street.fails(A, B)
    await asyncio.sleep(10)
    began, looks = street.loop.time(), len(street.looks)
    with pytest.raises(BrokerUnavailable) as failure:
        await street.brokers.pick()
    assert street.loop.time() - began <= LONGEST_PAUSE_SECONDS + 0.01
    assert {host for _, host in street.looks[looks:]} == {A.host, B.host}
    assert str(failure.value) == (
        "none of 2 brokers can be reached (brokerServiceURL): "
        "cannot connect to broker 192.0.2.1:6650: connection refused, for 10 s now; "
        "cannot connect to broker 192.0.2.2:6650: connection refused, for 10 s now"
    )


@virtually(street_of, A.host, B.host)
async def test_a_key_has_its_home_also_when_all_are_down(street: Street) -> None:
    home = street.brokers.home("tenant/ns")
    assert await street.brokers.pick("tenant/ns") == home
    other = B if home == A else A
    street.fails(home)
    assert street.brokers.home("tenant/ns") == other
    street.fails(other)
    assert street.brokers.home("tenant/ns") == home


@virtually(street_of, "brokers")
async def test_new_brokers_behind_a_name_are_found_soon_when_none_is_left(street: Street) -> None:
    street.resolved["brokers"] = ["192.0.2.1", "192.0.2.2"]
    await asyncio.sleep(5)
    old = [await street.brokers.pick() for _ in range(2)]
    assert {broker.address for broker in old} == {"192.0.2.1", "192.0.2.2"}
    street.down |= {"192.0.2.1", "192.0.2.2"}
    for broker in old:
        street.brokers.failed(broker, f"cannot connect to broker {broker}", answers_tcp=False)
    street.resolved["brokers"] = ["192.0.2.3", "192.0.2.4"]
    began = street.loop.time()
    assert (await street.brokers.pick()).address in ("192.0.2.3", "192.0.2.4")
    assert street.loop.time() - began <= LONGEST_PAUSE_SECONDS


@virtually(street_of, "brokers")
async def test_who_is_being_resolved_is_asked_meanwhile(street: Street) -> None:
    assert await street.brokers.pick() == BrokerAddress("brokers", 6650)


@virtually(street_of, A.host, B.host, idle=30.0)
async def test_a_silent_broker_is_looked_at_again_and_one_with_an_open_connection_is_not(street: Street) -> None:
    street.brokers.start(lambda broker: broker == B)
    await asyncio.sleep(300)
    assert {host for _, host in street.looks} == {A.host}
    assert 10 <= len(street.looks) <= 14
    assert street.brokers.states()["up"] == 2
    street.down.add(A.host)
    await asyncio.sleep(31)
    assert street.brokers.states()["down"] == 1


@virtually(street_of, A.host, idle=30.0)
async def test_traffic_puts_a_look_off(street: Street) -> None:
    for _ in range(100):
        street.brokers.worked(A)
        await asyncio.sleep(10)
    assert not street.looks


@virtually(street_of, A.host, idle=30.0)
async def test_a_broker_whose_tls_fails_is_never_up_and_one_on_trial_without_requests_is_looked_at(
    street: Street,
) -> None:
    street.fault = BrokerUnavailable("TLS handshake: no")
    await asyncio.sleep(100)
    assert street.brokers.states()["up"] == street.brokers.states()["unknown"] == 0
    street.fault = None
    await asyncio.sleep(31)
    assert street.brokers.states()["up"] == 1


MANY = [f"192.0.2.{number}" for number in range(1, 2 * MOST_LOOKS + 2)]


@virtually(street_of, *MANY, idle=30.0, silent=set(MANY))
async def test_looks_at_many_brokers_are_a_few_at_a_time(street: Street) -> None:
    await asyncio.sleep(5)
    assert len(street.looks) == MOST_LOOKS
    await asyncio.sleep(30)
    assert street.brokers.states()["down"] == len(MANY)


@virtually(street_of, A.host)
async def test_brokers_are_not_looked_at_where_nobody_asks_for_it(street: Street) -> None:
    await asyncio.sleep(100)
    assert not street.looks
    assert street.brokers.states()["unknown"] == 1


@virtually(street_of, A.host, idle=30.0)
async def test_a_lack_of_own_sockets_says_nothing_about_a_broker(street: Street) -> None:
    street.fault = NoSocket("too many open files")
    await asyncio.sleep(100)
    assert street.brokers.states()["unknown"] == 1


@virtually(street_of, A.host)
async def test_requests_that_wait_get_an_error_when_the_brokers_are_closed(street: Street) -> None:
    street.fails(A)
    asked = [asyncio.get_running_loop().create_task(street.brokers.pick()) for _ in range(200)]
    await asyncio.sleep(0)
    await street.brokers.close()
    ended = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(each) for each in ended} == {BrokerUnavailable}
