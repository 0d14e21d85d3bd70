"""Memory for commands goes to those who wait in turns by network, at once, and never to one network alone."""

import asyncio
from typing import Any

import pytest

from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget
from proxy.requests.request_bytes import LEAST_TURNS, MANY_OUTSTANDING, RESERVE_OF, RequestBytes
from tests.support.clients.list_clients import turns

LIMIT = 1000
RESERVE = LIMIT // RESERVE_OF
FEW, MANY = MANY_OUTSTANDING - 1, MANY_OUTSTANDING


class Line:
    """The memory for commands beside a loop whose clock is set by hand, and the turns that clients had."""

    def __init__(self) -> None:
        self.now = 100.0
        loop = asyncio.get_running_loop()
        self.budget = LoopBudget(loop, lambda: self.now)
        self.bytes: Any = RequestBytes(loop, LIMIT, self.budget)
        self.order: list[Client] = []
        # What a turn takes of the loop's time.
        self.seconds = 0.0

    @property
    def waiting(self) -> int:
        return int(self.bytes.record().muted)

    @property
    def used(self) -> int:
        return int(self.bytes.record().used_bytes)

    def crowd(self, count: int, network: str = "192.0.2.1", **keys: int) -> list["Client"]:
        """Let clients wait, all of one network."""
        clients = [Client(self, network, **keys) for _ in range(count)]
        for client in clients:
            client.asks()
        return clients


class Client:
    """A client with commands of `size` bytes."""

    def __init__(
        self, line: Line, network: str = "192.0.2.1", outstanding: int = MANY, size: int = 1, commands: int = 1
    ) -> None:
        self.line, self.network, self.outstanding = line, network, outstanding
        self.size, self.commands = size, commands

    def asks(self) -> bool:
        """Send a command; return whether it was served at once."""
        if self.line.bytes.admits(self):
            self.served()
            return True
        self.line.bytes.wait(self)
        return False

    def served(self) -> None:
        self.line.bytes.hold(self.network, self.size)
        self.commands -= 1

    def begin_command_turn(self) -> None:
        self.line.order.append(self)
        self.line.now += self.line.seconds
        self.served()
        if self.commands:
            self.line.bytes.wait(self)


@pytest.mark.threat("large-commands-silent-broker")
@pytest.mark.parametrize("outstanding", [FEW, MANY])
async def test_a_neighbour_waits_for_one_command_of_each_other_network(outstanding: int) -> None:
    line = Line()
    line.bytes.hold("198.51.100.1", LIMIT + RESERVE)
    for number in range(3):
        line.crowd(100, f"192.0.2.{number}", outstanding=outstanding, commands=10)
    neighbour = line.crowd(1, "203.0.113.1", outstanding=outstanding)[0]
    assert line.waiting == 301
    line.bytes.release("198.51.100.1", LIMIT + RESERVE)
    while neighbour not in line.order:
        await turns(1)
    assert line.order.index(neighbour) == 3
    assert len({client.network for client in line.order[:3]}) == 3


@pytest.mark.threat("large-commands-silent-broker")
async def test_the_line_is_empty_an_iteration_after_memory_is_free() -> None:
    line = Line()
    line.bytes.hold("198.51.100.1", LIMIT)
    crowd = line.crowd(200)
    await turns(1)
    assert line.order == []
    line.bytes.release("198.51.100.1", LIMIT)
    await turns(1)
    assert set(line.order) == set(crowd)
    assert (line.waiting, line.used) == (0, 200)


async def test_some_turns_are_for_those_who_wait_however_busy_others_keep_the_loop() -> None:
    line = Line()
    line.bytes.hold("198.51.100.1", LIMIT)
    line.crowd(20)
    line.bytes.release("198.51.100.1", LIMIT)
    line.budget.spent()
    line.now += 2 * ITERATION_SECONDS
    await turns(1)
    assert len(line.order) == LEAST_TURNS


async def test_a_crowd_of_one_network_with_few_outstanding_each_leaves_half_of_the_reserve_to_others() -> None:
    line = Line()
    line.crowd(1000, outstanding=FEW, size=5)
    assert line.used == LIMIT + RESERVE // 2
    neighbours = [Client(line, f"203.0.113.{number}", FEW, size=10) for number in range(5)]
    for neighbour in neighbours:
        neighbour.asks()
    await turns(1)
    assert line.order == neighbours
    # No network takes all that is left, and a newcomer finds some of it.
    line.crowd(100, "203.0.113.99", outstanding=FEW, size=10)
    await turns(5)
    assert LIMIT + RESERVE // 2 < line.used < LIMIT + RESERVE
    newcomer = line.crowd(1, "203.0.113.100", outstanding=FEW, size=10)[0]
    await turns(1)
    assert line.order[-1] is newcomer


async def test_a_network_that_has_no_room_and_then_holds_more_or_less_is_judged_by_what_it_holds() -> None:
    line = Line()
    line.bytes.hold("198.51.100.1", LIMIT + RESERVE - 60)
    client = Client(line, "192.0.2.1", FEW)
    line.bytes.hold(client.network, 40)
    assert not client.asks()
    await turns(2)
    line.bytes.hold(client.network, 30)
    line.bytes.release("198.51.100.1", 60)
    await turns(2)
    assert (line.order, line.waiting) == ([], 1)
    line.bytes.release(client.network, 65)
    await turns(2)
    assert line.order == [client]
    assert len(line.bytes) == 2


def without_room(line: Line, count: int) -> list[Client]:
    """Let a client of each of so many networks wait, of which each holds more than the 3 bytes that are left."""
    clients = [Client(line, f"192.0.2.{number}", FEW) for number in range(count)]
    for client in clients:
        line.bytes.hold(client.network, 4)
    line.bytes.hold("198.51.100.1", LIMIT + RESERVE - 3 - 4 * count)
    for client in clients:
        client.asks()
    return clients


async def test_of_many_networks_without_room_the_one_that_has_some_again_is_next_and_none_is_remembered() -> None:
    line = Line()
    clients = without_room(line, 300)
    await turns(10)
    line.bytes.release(clients[-1].network, 1)
    await turns(2)
    assert line.order == clients[-1:]
    for client in clients[:-1]:
        line.bytes.leave(client)
        line.bytes.release(client.network, 4)
    line.bytes.release(clients[-1].network, 4)
    line.bytes.release("198.51.100.1", LIMIT + RESERVE - 1203)
    assert len(line.bytes) == 0


async def test_networks_that_have_no_room_when_their_turn_comes_keep_no_newcomer_waiting() -> None:
    line = Line()
    without_room(line, 250)
    await turns(10)
    # Each that waits has room, until some of them have taken it.
    line.bytes.release("198.51.100.1", 10)
    await turns(1)
    assert 0 < len(line.order) < 20
    newcomer = line.crowd(1, "203.0.113.1", outstanding=FEW)[0]
    await turns(1)
    assert line.order[-1] is newcomer


async def test_no_network_has_far_more_turns_than_those_that_have_no_room_for_a_moment() -> None:
    line, returned = Line(), 0
    line.bytes.hold("198.51.100.1", LIMIT + RESERVE)
    crowds = [line.crowd(1, f"192.0.2.{number}", outstanding=FEW, commands=40)[0] for number in range(5)]
    counts: list[int] = []
    line.bytes.release("198.51.100.1", 8)
    while line.waiting:
        await turns(2)
        counts = [line.order.count(client) for client in crowds]
        assert max(counts) <= 2 * min(counts) + 2
        answered, returned = line.order[returned:], len(line.order)
        for client in answered:
            line.bytes.release(client.network, client.size)
    assert counts == [40] * 5


async def test_a_client_whose_turn_raises_keeps_none_of_the_others_waiting() -> None:
    line, lost = Line(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context["exception"]))
    line.bytes.hold("198.51.100.1", LIMIT + RESERVE)
    clients = line.crowd(100)
    failure = ValueError()

    def fail() -> None:
        raise failure

    for client in clients[::10]:
        client.begin_command_turn = fail  # type: ignore[method-assign]
    line.bytes.release("198.51.100.1", LIMIT + RESERVE)
    await turns(200)
    assert (len(line.order), line.waiting, lost) == (90, 0, [failure] * 10)
