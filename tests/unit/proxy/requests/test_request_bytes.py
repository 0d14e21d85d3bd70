"""Memory for commands goes to those who wait in turns by network, at once, and never to one network alone."""

import asyncio
import random

import pytest

from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget
from proxy.requests.request_bytes import LEAST_TURNS, MANY_OUTSTANDING, MOST_LOOKS, RESERVE_OF, RequestBytes, _Books
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
        self.bytes = RequestBytes(loop, LIMIT, self.budget)
        self.order: list[Client] = []
        # What a turn takes of the loop's time.
        self.seconds = 0.0

    @property
    def waiting(self) -> int:
        return self.bytes.record().muted

    @property
    def used(self) -> int:
        return self.bytes.record().used_bytes

    def crowd(self, count: int, network: str = "192.0.2.1", **keys: int) -> list["Client"]:
        """Let clients wait, all of one network."""
        clients = [Client(self, network, **keys) for _ in range(count)]
        for client in clients:
            client.asks()
        return clients


class Client:
    """A client (`CommandSender`) with commands of `size` bytes."""

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


@pytest.fixture
def from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "randrange", lambda below: 0)


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


async def test_turns_take_the_time_of_an_iteration_and_no_more() -> None:
    line = Line()
    line.seconds = ITERATION_SECONDS / 10
    line.bytes.hold("198.51.100.1", LIMIT)
    line.crowd(200)
    line.bytes.release("198.51.100.1", LIMIT)
    most = 0
    while line.waiting:
        before = len(line.order)
        await turns(1)
        most = max(most, len(line.order) - before)
    assert len(line.order) == 200
    assert LEAST_TURNS < most <= ITERATION_SECONDS / line.seconds + 2


async def test_some_turns_are_for_those_who_wait_however_busy_others_keep_the_loop() -> None:
    line = Line()
    line.bytes.hold("198.51.100.1", LIMIT)
    line.crowd(20)
    line.bytes.release("198.51.100.1", LIMIT)
    line.budget.spent()
    line.now += 2 * ITERATION_SECONDS
    await turns(1)
    assert len(line.order) == LEAST_TURNS


async def test_turns_end_when_the_memory_is_used_up() -> None:
    line = Line()
    line.bytes.hold("198.51.100.1", LIMIT)
    line.crowd(50, size=100)
    line.bytes.release("198.51.100.1", 250)
    await turns(3)
    # The last that was granted may pass the limit.
    assert (len(line.order), line.used) == (3, LIMIT + 50)
    assert line.waiting == 47


async def test_who_has_few_outstanding_is_served_at_once_while_others_fill_the_limit() -> None:
    line = Line()
    line.crowd(12, size=100)
    assert (line.used, line.waiting) == (LIMIT, 2)
    assert Client(line, "203.0.113.1", FEW).asks()
    # Also behind the address of those that filled it.
    assert Client(line, "192.0.2.1", FEW).asks()
    assert not Client(line, "203.0.113.1", MANY).asks()


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


async def test_limit_and_reserve_are_passed_by_one_command() -> None:
    line = Line()
    line.bytes.hold("198.51.100.1", LIMIT)
    for number in range(1000):
        line.crowd(2, f"192.0.2.{number}", outstanding=FEW, size=30)
    await turns(10)
    assert LIMIT + RESERVE // 2 < line.used < LIMIT + RESERVE + 30
    assert line.waiting == 2000 - (line.used - LIMIT) // 30


async def test_who_waits_with_many_outstanding_joins_those_with_few_when_answers_have_come() -> None:
    line = Line()
    line.bytes.hold("198.51.100.1", LIMIT)
    pipelining = line.crowd(1, "203.0.113.1", outstanding=MANY, size=10)[0]
    await turns(2)
    assert line.order == []
    pipelining.outstanding = FEW
    line.bytes.answered(pipelining)
    await turns(2)
    assert line.order == [pipelining]
    assert line.waiting == 0


async def test_connections_of_a_network_have_turns_in_the_order_of_coming(from_the_beginning: None) -> None:
    line = Line()
    line.bytes.hold("198.51.100.1", LIMIT)
    crowd = line.crowd(5, commands=3)
    line.bytes.release("198.51.100.1", LIMIT)
    await turns(1)
    assert line.order == crowd * 3


async def test_the_connection_that_begins_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line()
    monkeypatch.setattr(random, "randrange", lambda below: below - 2)
    line.bytes.hold("198.51.100.1", LIMIT)
    crowd = line.crowd(5)
    line.bytes.release("198.51.100.1", LIMIT)
    await turns(1)
    assert line.order == [crowd[3], crowd[4], *crowd[:3]]


@pytest.mark.parametrize("outstanding", [FEW, MANY])
async def test_nothing_is_left_of_clients_that_leave(outstanding: int) -> None:
    line = Line()
    line.bytes.hold("198.51.100.1", LIMIT + RESERVE)
    for client in line.crowd(50, outstanding=outstanding):
        line.bytes.leave(client)
        line.bytes.leave(client)
    assert line.waiting == 0
    line.bytes.release("198.51.100.1", LIMIT + RESERVE)
    await turns(2)
    assert (len(line.bytes), line.used, line.order) == (0, 0, [])
    assert not line.bytes.scarce


async def test_a_wait_for_memory_is_no_busy_loop() -> None:
    line = Line()
    line.crowd(1000, outstanding=FEW, size=10)
    line.crowd(10, outstanding=MANY)
    await turns(2)
    assert line.waiting > 800
    assert not line.bytes._scheduled


def crowd_of_networks(line: Line, count: int, size: int) -> list[Client]:
    """Let a client of each of many networks wait, all of which hold `size` bytes."""
    for number in range(count):
        line.bytes.hold(f"network {number}", size)
    return [line.crowd(1, f"network {number}", outstanding=FEW)[0] for number in range(count)]


@pytest.mark.threat("large-commands-silent-broker")
async def test_who_has_no_room_is_not_judged_again_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    line, judged = Line(), 0
    has_room = _Books.has_room

    def counted(books: _Books, network: str) -> bool:
        nonlocal judged
        judged += 1
        return has_room(books, network)

    monkeypatch.setattr(_Books, "has_room", counted)
    crowd = crowd_of_networks(line, LIMIT + RESERVE - 1, 1)
    most = 0
    while line.bytes._scheduled:
        before = judged
        await turns(1)
        most = max(most, judged - before)
    # One byte is left, and each holds as much.
    assert (line.order, line.waiting) == ([], len(crowd))
    assert most <= MOST_LOOKS
    judged = 0
    for client in crowd[:10]:
        line.bytes.leave(client)
        await turns(1)
    assert judged == 0
    line.bytes.release(crowd[10].network, 1)
    await turns(2)
    assert crowd[10] in line.order
    assert line.bytes._books.left <= 0
    assert judged < 10


async def test_a_network_that_had_no_room_in_its_turn_has_it_when_others_have_given_memory_back() -> None:
    line = Line()
    line.bytes.hold("198.51.100.1", LIMIT + RESERVE - 101)
    large = Client(line, "192.0.2.1", FEW, size=50)
    line.bytes.hold(large.network, 90)
    assert not large.asks()
    await turns(2)
    assert line.order == []
    line.bytes.hold("198.51.100.2", 11)
    small = line.crowd(1, "203.0.113.1", outstanding=FEW)[0]
    line.bytes.release("198.51.100.1", 400)
    await turns(2)
    assert line.order == [large, small]


async def test_a_network_that_has_no_room_and_then_holds_more_or_less_is_judged_by_what_it_holds() -> None:
    line = Line()
    line.bytes.hold("198.51.100.1", LIMIT + RESERVE - 60)
    client = Client(line, "192.0.2.1", FEW)
    line.bytes.hold(client.network, 40)
    assert not client.asks()
    await turns(2)
    line.bytes.hold(client.network, 10)
    line.bytes.release("198.51.100.1", 30)
    await turns(2)
    assert (line.order, line.waiting) == ([], 1)
    line.bytes.release(client.network, 45)
    await turns(2)
    assert line.order == [client]
    assert len(line.bytes) == 2


@pytest.mark.parametrize("seed", range(20))
async def test_nobody_with_room_is_left_waiting_and_nobody_without_is_served(seed: int) -> None:
    line, draw = Line(), random.Random(seed)
    held: list[tuple[str, int]] = []

    class Served(Client):
        def served(self) -> None:
            super().served()
            held.append((self.network, self.size))

    waiting: list[Client] = []
    for _ in range(400):
        network = f"network {draw.randrange(12)}"
        match draw.randrange(4):
            case 0 | 1:
                client = Served(line, network, FEW, draw.choice((1, 20, 90)), draw.randrange(1, 4))
                waiting.append(client)
                client.asks()
            case 2 if held:
                line.bytes.release(*held.pop(draw.randrange(len(held))))
            case 3 if waiting:
                line.bytes.leave(waiting.pop(draw.randrange(len(waiting))))
        await turns(2)
        books = line.bytes._books
        assert not line.bytes._scheduled
        left_out = [client for client in waiting if client.commands and client.network in line.bytes._few._lines]
        if books.left > 0:
            assert not any(books.has_room(client.network) for client in left_out)
    while held:
        line.bytes.release(*held.pop())
        await turns(2)
    assert line.waiting == 0
    assert (len(line.bytes), line.used) == (0, 0)


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
