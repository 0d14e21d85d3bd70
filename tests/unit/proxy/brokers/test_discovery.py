"""Choosing brokers over time: looks at those that are down, requests that wait for one, in virtual time."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Any, cast

import pytest

from proxy.app.metrics.counters import Counters
from proxy.brokers.discovery import WAIT_SECONDS, Brokers, BrokerSettings
from proxy.brokers.members import FIRST_LOOK_SECONDS, MOST_LOOKS
from proxy.brokers.resolver import CachingResolver
from proxy.brokers.target import BrokerAddress
from proxy.core.errors import BrokerUnavailable, BrokerUnreachable, NoSocket
from proxy.core.log import open_log
from proxy.core.loop_budget import LoopBudget
from proxy.core.task_turns import TASKS_PER_TURN
from tests.support.loops.loops import most_in_an_iteration, run_virtual

A, B = BrokerAddress("192.0.2.1", 6650), BrokerAddress("192.0.2.2", 6650)
LONGEST = 0.5


class Street:
    """Brokers that a dialer reaches or not; `looks` are the times at which each was tried."""

    def __init__(self, *hosts: str, idle: float = 0.0) -> None:
        self.loop = asyncio.get_running_loop()
        self.down: set[str] = set()
        self.silent: set[str] = set()
        self.broken: set[str] = set()
        self.no_sockets = False
        self.looks: list[tuple[float, str]] = []
        self.counters = Counters()
        self.resolved: dict[str, list[str]] = {}
        budget = LoopBudget(self.loop, self.loop.time)
        names = CachingResolver(self.loop, 30.0, 1, self._crashed, budget, self._ask)
        settings = BrokerSettings(tuple((host, 6650) for host in hosts), False, 30.0, LONGEST, idle_seconds=idle)
        counters, log = self.counters.brokers, open_log("error")
        self.brokers = Brokers(self.loop, settings, names, cast(Any, self), counters, log, budget)

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
        if self.no_sockets:
            raise NoSocket(f"cannot connect to broker {broker}: too many open files")
        if addresses[0] in self.broken:
            raise BrokerUnavailable(f"cannot connect to broker {broker}: TLS handshake: no")
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
        while not self.brokers._members.usable(broker):
            await self.brokers._waiters.wait()

    @staticmethod
    def _crashed(error: BaseException) -> None:
        raise error


def on_a_street(
    *hosts: str, idle: float = 0.0, down: Set[str] = frozenset(), silent: Set[str] = frozenset()
) -> Callable[[Callable[[Street], Awaitable[None]]], None]:
    def run(body: Callable[[Street], Awaitable[None]]) -> None:
        async def main() -> None:
            street = Street(*hosts, idle=idle)
            street.down |= down
            street.silent |= silent
            street.brokers.start()
            await body(street)
            await street.brokers.close()
            assert not street.counters.shared.internal_errors

        run_virtual(main())

    return run


def test_a_broker_is_used_again_within_a_second_of_its_return_however_long_it_was_away() -> None:
    @on_a_street(A.host, B.host)
    async def _(street: Street) -> None:
        street.fails(A)
        for away in (0.01, 1.0, 60.0):
            await asyncio.sleep(away)
            street.down.clear()
            back = street.loop.time()
            await street.returned(A)
            assert street.loop.time() - back <= LONGEST + 0.02
            street.fails(A)


def test_a_broker_that_is_down_is_looked_at_at_its_pace_whoever_asks() -> None:
    @on_a_street(A.host)
    async def _(street: Street) -> None:
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
        assert len(street.looks) <= 5 + seconds / (0.75 * LONGEST)


def test_a_request_that_finds_no_broker_waits_for_the_one_that_comes_back() -> None:
    @on_a_street(A.host, B.host)
    async def _(street: Street) -> None:
        street.fails(A, B)
        await asyncio.sleep(10)
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(street.brokers.pick()) for _ in range(20)]
            await asyncio.sleep(0)
            street.down.discard(B.host)
        assert {task.result() for task in waiting} == {B}


def test_a_request_that_finds_no_broker_is_told_after_one_look_at_each() -> None:
    @on_a_street(A.host, B.host)
    async def _(street: Street) -> None:
        street.fails(A, B)
        await asyncio.sleep(10)
        began, looks = street.loop.time(), len(street.looks)
        with pytest.raises(BrokerUnavailable) as failure:
            await street.brokers.pick()
        assert street.loop.time() - began <= LONGEST + 0.01
        assert {host for _, host in street.looks[looks:]} == {A.host, B.host}
        assert str(failure.value) == (
            "none of 2 brokers can be reached (brokerServiceURL): "
            "cannot connect to broker 192.0.2.1:6650: connection refused, for 10 s now; "
            "cannot connect to broker 192.0.2.2:6650: connection refused, for 10 s now"
        )


def test_a_broker_that_swallows_packets_keeps_nobody_waiting_for_long() -> None:
    @on_a_street(A.host)
    async def _(street: Street) -> None:
        street.fails(A)
        street.silent.add(A.host)
        await asyncio.sleep(0.06)
        began = street.loop.time()
        with pytest.raises(BrokerUnavailable):
            await street.brokers.pick()
        assert street.loop.time() - began <= WAIT_SECONDS


def test_who_is_cancelled_while_it_waits_leaves_nothing() -> None:
    @on_a_street(A.host)
    async def _(street: Street) -> None:
        street.fails(A)
        task = asyncio.get_running_loop().create_task(street.brokers.pick())
        await asyncio.sleep(0)
        assert street.brokers._waiters
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not street.brokers._waiters


def test_a_broker_whose_name_leads_elsewhere_meanwhile_is_found_there() -> None:
    @on_a_street("broker")
    async def _(street: Street) -> None:
        street.resolved["broker"] = ["192.0.2.1"]
        await asyncio.sleep(0.1)
        street.down.add("192.0.2.1")
        broker = await street.brokers.pick()
        street.brokers.failed(broker, "connection refused", answers_tcp=False)
        street.resolved["broker"] = ["192.0.2.9"]
        began = street.loop.time()
        await street.returned(broker)
        assert street.loop.time() - began <= 2.0
        assert await street.brokers.resolve(broker) == ["192.0.2.9"]


def test_another_broker_than_the_one_to_avoid_is_a_fail_over() -> None:
    @on_a_street(A.host, B.host)
    async def _(street: Street) -> None:
        assert {await street.brokers.pick(avoid=A) for _ in range(3)} == {B}
        assert street.counters.brokers.broker_fail_overs == 3
        street.fails(B)
        # With no other left the same may be tried again: it may only have lost a connection.
        assert await street.brokers.pick(avoid=A) == A
        assert street.counters.brokers.broker_fail_overs == 3


def test_a_key_has_its_home_also_when_all_are_down() -> None:
    @on_a_street(A.host, B.host)
    async def _(street: Street) -> None:
        home = street.brokers.home("tenant/ns")
        assert await street.brokers.pick("tenant/ns") == home
        other = B if home == A else A
        street.fails(home)
        assert street.brokers.home("tenant/ns") == other
        street.fails(other)
        assert street.brokers.home("tenant/ns") == home


def test_new_brokers_behind_a_name_are_found_soon_when_none_is_left() -> None:
    @on_a_street("brokers")
    async def _(street: Street) -> None:
        street.resolved["brokers"] = ["192.0.2.1", "192.0.2.2"]
        await asyncio.sleep(5)
        old = [member.address for member in street.brokers._members.all()]
        assert [broker.address for broker in old] == ["192.0.2.1", "192.0.2.2"]
        street.down |= {"192.0.2.1", "192.0.2.2"}
        for broker in old:
            street.brokers.failed(broker, f"cannot connect to broker {broker}", answers_tcp=False)
        assert "brokers:6650 (192.0.2.1)" in street.brokers._why()
        street.resolved["brokers"] = ["192.0.2.3", "192.0.2.4"]
        began = street.loop.time()
        assert (await street.brokers.pick()).address in ("192.0.2.3", "192.0.2.4")
        assert street.loop.time() - began <= LONGEST


def test_who_is_being_resolved_is_asked_meanwhile() -> None:
    @on_a_street("brokers")
    async def _(street: Street) -> None:
        assert await street.brokers.pick() == BrokerAddress("brokers", 6650)


def looked_at(street: Street) -> list[str]:
    return sorted(host for _, host in street.looks)


def test_each_broker_is_looked_at_at_the_start_without_a_client() -> None:
    @on_a_street(A.host, B.host, idle=30.0, down={B.host})
    async def _(street: Street) -> None:
        assert street.brokers.states() == {"unknown": 2, "refusing": 0, "up": 0, "trial": 0, "down": 0}
        unproven = [street.brokers.unproven]
        await asyncio.sleep(FIRST_LOOK_SECONDS + 0.01)
        assert street.brokers.states() == {"unknown": 0, "refusing": 0, "up": 1, "trial": 0, "down": 1}
        assert [*unproven, street.brokers.unproven] == [True, False]
        assert [row["error"] for row in street.brokers.shown()] == [
            "", f"cannot connect to broker {B}: connection refused",
        ]  # fmt: skip


def test_a_silent_broker_is_looked_at_again_and_one_with_an_open_connection_is_not() -> None:
    @on_a_street(A.host, B.host, idle=30.0)
    async def _(street: Street) -> None:
        street.brokers.in_use = lambda broker: broker == B
        await asyncio.sleep(300)
        assert 10 <= looked_at(street).count(A.host) <= 14
        assert looked_at(street).count(B.host) == 0
        assert street.brokers.states()["up"] == 2
        street.down.add(A.host)
        await asyncio.sleep(31)
        assert street.brokers.states()["down"] == 1


def test_traffic_puts_a_look_off() -> None:
    @on_a_street(A.host, idle=30.0)
    async def _(street: Street) -> None:
        for _ in range(100):
            street.brokers.worked(A)
            await asyncio.sleep(10)
        assert not street.looks


def test_a_broker_whose_tls_fails_is_never_up_and_one_on_trial_without_requests_is_looked_at() -> None:
    @on_a_street(A.host, idle=30.0)
    async def _(street: Street) -> None:
        street.broken.add(A.host)
        await asyncio.sleep(100)
        assert street.brokers.states()["up"] == street.brokers.states()["unknown"] == 0
        street.broken.clear()
        await asyncio.sleep(31)
        assert street.brokers.states()["up"] == 1


def test_looks_at_many_brokers_are_a_few_at_a_time() -> None:
    hosts = [f"192.0.2.{number}" for number in range(1, 101)]

    @on_a_street(*hosts, idle=30.0, silent=set(hosts))
    async def _(street: Street) -> None:
        await asyncio.sleep(5)
        assert len(street.looks) == MOST_LOOKS
        await asyncio.sleep(200)
        assert street.brokers.states()["down"] == 100


def test_brokers_are_not_looked_at_where_nobody_asks_for_it() -> None:
    @on_a_street(A.host)
    async def _(street: Street) -> None:
        await asyncio.sleep(100)
        assert not street.looks
        assert street.brokers.states()["unknown"] == 1


def test_a_lack_of_own_sockets_says_nothing_about_a_broker() -> None:
    @on_a_street(A.host, idle=30.0)
    async def _(street: Street) -> None:
        street.no_sockets = True
        await asyncio.sleep(100)
        assert street.brokers.states()["unknown"] == 1


@pytest.mark.threat("waiters-in-one-step")
def test_requests_that_wait_for_a_broker_go_on_a_few_in_an_iteration() -> None:
    @on_a_street(A.host)
    async def _(street: Street) -> None:
        street.fails(A)
        chosen = list[BrokerAddress]()

        async def ask() -> None:
            chosen.append(await street.brokers.pick())

        async with asyncio.TaskGroup() as group:
            for _ in range(200):
                group.create_task(ask())
            await asyncio.sleep(0)
            street.brokers.worked(A)
            assert await most_in_an_iteration(lambda: len(chosen), 200) <= TASKS_PER_TURN


def test_requests_that_wait_get_an_error_when_the_brokers_are_closed() -> None:
    @on_a_street(A.host)
    async def _(street: Street) -> None:
        street.fails(A)
        asked = [asyncio.get_running_loop().create_task(street.brokers.pick()) for _ in range(200)]
        await asyncio.sleep(0)
        await street.brokers.close()
        ended = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(each) for each in ended} == {BrokerUnavailable}
