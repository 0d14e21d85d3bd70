"""Which answers take a share of direct memory, and what a client may have without one."""

import asyncio
from collections.abc import Hashable
from typing import Any

import pytest

from limiter.errors import PermitAcquireTimeout
from limiter.semaphore import AsyncSemaphore
from proxy.core.counters import Counters
from proxy.net.spill.judge import LEAST_REST_BYTES
from proxy.net.spill.space import SpillSpace
from proxy.requests.reader_shares import PINGS_A_TURN, AnswerShare, Call, ReaderShares
from tests.support.clients.reader_output import ReaderOutput
from tests.support.loops.clock import ManualClock

LIMIT = 1000 * 1024
PART = LIMIT // 4


class Disk(SpillSpace):
    """A disk that has room, or none."""

    def __init__(self, *, room: bool) -> None:
        super().__init__(LIMIT, 1, Counters())
        self.room = room
        self.asked: list[tuple[int, Hashable]] = []

    def has_room_for(self, memory_bytes: int, key: Hashable) -> bool:
        self.asked.append((memory_bytes, key))
        return self.room


def shares(percent: int = 50, disk: Any = None) -> ReaderShares:
    direct = AsyncSemaphore("direct", LIMIT, max_queue=0, timeout_seconds=0.0, clock=ManualClock())
    found = ReaderShares(direct, disk)
    found.apply(percent)
    return found


def answer(rule: ReaderShares, client: ReaderOutput) -> AnswerShare:
    output: Any = client
    return rule.for_answer(output, "key")


def needs(rule: ReaderShares, client: ReaderOutput, size: int | None) -> bool:
    output: Any = client
    return rule.holds_for_list(output, size)


async def test_answers_for_clients_that_answer_no_ping_have_a_quarter_at_most() -> None:
    rule = shares()
    first, second = answer(rule, ReaderOutput()), answer(rule, ReaderOutput())
    assert first.try_take(PART - 1, PART - 1)
    assert not second.try_take(2, 2)
    first.end()
    assert second.try_take(2, 2)
    second.end()
    second.end()
    assert rule.semaphore.held == 0


async def test_without_the_rule_nobody_takes_a_share() -> None:
    rule = shares(100)
    assert answer(rule, ReaderOutput()).try_take(LIMIT, LIMIT)
    assert rule.semaphore.held == 0


async def test_what_fits_into_the_socket_counts_until_it_is_there() -> None:
    rule, client = shares(), ReaderOutput(room=100)
    first, second = answer(rule, client), answer(rule, client)
    assert first.try_take(60, 600)
    assert (rule.semaphore.held, client.expected_bytes) == (0, 60)
    assert second.try_take(60, 600)
    assert (rule.semaphore.held, client.expected_bytes) == (600, 60)
    first.end()
    second.end()
    assert (rule.semaphore.held, client.expected_bytes) == (0, 0)


async def test_a_client_that_reads_has_one_answer_without_a_share() -> None:
    rule, client = shares(), ReaderOutput(reads=True)
    first, second = answer(rule, client), answer(rule, client)
    assert first.try_take(LIMIT, LIMIT)
    assert second.try_take(10, 10)
    assert rule.semaphore.held == 10
    first.end()
    second.end()


async def test_a_client_that_reads_takes_its_earlier_answers_before_a_share() -> None:
    rule, client = shares(), ReaderOutput(reads=True, busy=True)
    taken, late = answer(rule, ReaderOutput()), answer(rule, client)
    assert taken.try_take(PART, PART)
    assert not late.try_take(10, 10)
    await late.wait(10)
    assert (client.waited, rule.semaphore.held) == (1, PART)
    # Another answer came meanwhile: now a share is waited for, or brokers would be asked for ever.
    waiting = asyncio.get_running_loop().create_task(late.wait(10))
    with pytest.raises(PermitAcquireTimeout):
        await waiting
    taken.end()
    await late.wait(10)
    assert late.try_take(12, 12), "the answer may have grown meanwhile"
    assert (client.waited, rule.semaphore.held) == (1, 12)
    late.end()


async def test_a_list_that_can_go_to_disk_counts_half_while_there_is_room() -> None:
    disk, size = Disk(room=True), LEAST_REST_BYTES
    assert shares().share_bytes(size, "key") == size, "there is no disk"
    rule = shares(disk=disk)
    assert rule.share_bytes(size, "key") == size // 2
    assert disk.asked == [(LIMIT, "key")]
    assert rule.share_bytes(size - 1, "key") == size - 1, "a list so small stays in memory"
    disk.room = False
    assert rule.share_bytes(size, "key") == size


async def test_with_a_disk_too_a_list_needs_a_share_until_its_client_reads() -> None:
    rule = shares(disk=Disk(room=True))
    assert needs(rule, ReaderOutput(), LEAST_REST_BYTES)
    assert needs(rule, ReaderOutput(), None)
    assert not needs(rule, ReaderOutput(reads=True), LEAST_REST_BYTES)
    assert not needs(rule, ReaderOutput(room=LEAST_REST_BYTES), LEAST_REST_BYTES)


async def test_thousands_of_clients_get_their_pings_a_few_at_a_time_and_each_may_answer() -> None:
    clients: list[Any] = [ReaderOutput() for _ in range(3 * PINGS_A_TURN)]
    call = Call(clients)
    waiting = asyncio.get_running_loop().create_task(call.unless_answered(asyncio.sleep(1000, "given")))
    counts = []
    for _ in range(4):
        await asyncio.sleep(0)
        counts.append(sum(client.pings for client in clients))
    assert counts == [PINGS_A_TURN, 2 * PINGS_A_TURN, 3 * PINGS_A_TURN, 3 * PINGS_A_TURN]
    joined: Any = ReaderOutput()
    call.add(joined)
    call.add(clients[0])
    assert (joined.pings, clients[0].pings) == (1, 1)
    clients[-1].pong()
    assert await waiting is None
    assert not any(client.callers for client in [*clients, joined])


async def test_no_ping_goes_out_when_the_wait_is_over() -> None:
    async def at_once() -> str:
        return "given"

    clients: list[Any] = [ReaderOutput() for _ in range(2 * PINGS_A_TURN)]
    assert await Call(clients).unless_answered(at_once()) == "given"
    await asyncio.sleep(0)
    assert sum(client.pings for client in clients) == PINGS_A_TURN
    assert not any(client.callers for client in clients)
