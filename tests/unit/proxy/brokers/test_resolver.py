"""Names are resolved once for all who ask, kept for a while, and never let a resolver that hangs take everything."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress

import pytest

from proxy.brokers.name_queries import MOST_HANGING
from proxy.brokers.resolver import (
    KNOWN_AT_ONCE,
    MOST_ANSWERS,
    MOST_FAILED,
    MOST_HANGING_OF_A_NAME,
    CachingResolver,
)
from proxy.brokers.target import RESOLVE_SECONDS
from proxy.core.errors import TargetRefused
from proxy.core.loop_budget import LoopBudget
from tests.support.brokers.played import crash
from tests.support.loops.loops import virtually

TTL = 30.0
PORT = 6650
AT_ONCE = 2
NO_SUCH_NAME = socket.gaierror(socket.EAI_NONAME, "no such name")
RESOLVER_DOWN = socket.gaierror(socket.EAI_AGAIN, "try again")


class Resolver:
    """A system's resolver: counts questions, answers or fails, or waits for `gate`."""

    def __init__(self, at_once: int = AT_ONCE, *, stale_serves: bool = True) -> None:
        self.loop = asyncio.get_running_loop()
        self.asked: list[str] = []
        self.addresses = ["192.0.2.1", "192.0.2.1", "2001:db8::1"]
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.hanging: set[str] = set()
        self.released = asyncio.Event()
        budget = LoopBudget(self.loop, self.loop.time)
        self.names = CachingResolver(self.loop, TTL, at_once, crash, budget, self.ask, stale_serves=stale_serves)

    def fails(self, *, hangs: bool) -> None:
        if hangs:
            self.gate.clear()
        else:
            self.error = RESOLVER_DOWN

    async def ask(self, name: str) -> list[str]:
        self.asked.append(name)
        await self.gate.wait()
        if name in self.hanging:
            await self.released.wait()
        if self.error is not None:
            raise self.error
        return self.addresses


@asynccontextmanager
async def resolver_of(at_once: int = AT_ONCE, *, stale_serves: bool = True) -> AsyncIterator[Resolver]:
    resolver = Resolver(at_once, stale_serves=stale_serves)
    yield resolver
    resolver.gate.set()
    await resolver.names.close()


@virtually(resolver_of)
async def test_an_answer_is_kept_for_its_time_whatever_the_letters(resolver: Resolver) -> None:
    assert await resolver.names.resolve("Broker", PORT) == ["192.0.2.1", "2001:db8::1"]
    await asyncio.sleep(TTL - 1)
    await resolver.names.resolve("broker", PORT)
    assert resolver.asked == ["broker"]
    await asyncio.sleep(1)
    await resolver.names.resolve("broker", PORT)
    await asyncio.sleep(0)
    assert resolver.asked == ["broker"] * 2


@virtually(resolver_of)
async def test_a_name_that_does_not_resolve_is_asked_for_again_sooner(resolver: Resolver) -> None:
    resolver.error = NO_SUCH_NAME
    for _ in range(2):
        with pytest.raises(TargetRefused, match="host 'broker' cannot be resolved: no such name"):
            await resolver.names.resolve("broker", PORT)
    assert len(resolver.asked) == 1
    resolver.error = None
    await asyncio.sleep(TTL / 10)
    assert await resolver.names.resolve("broker", PORT)


@virtually(resolver_of)
async def test_a_stale_answer_serves_at_once_while_the_new_one_is_asked_for(resolver: Resolver) -> None:
    good = await resolver.names.resolve("broker", PORT)
    resolver.gate.clear()
    resolver.addresses = ["192.0.2.2"]
    await asyncio.sleep(TTL)
    began = resolver.loop.time()
    for _ in range(3):
        assert await resolver.names.resolve("broker", PORT) == good
        await asyncio.sleep(1)
    assert resolver.loop.time() - began == pytest.approx(3)
    assert resolver.asked == ["broker"] * 2
    resolver.gate.set()
    await asyncio.sleep(1)
    assert await resolver.names.resolve("broker", PORT) == ["192.0.2.2"]


@pytest.mark.threat("stale-broker-address")
@pytest.mark.parametrize("hangs", [True, False])
@virtually(resolver_of)
async def test_a_stale_answer_serves_for_no_more_than_another_ttl(resolver: Resolver, hangs: bool) -> None:
    good = await resolver.names.resolve("broker", PORT)
    resolver.fails(hangs=hangs)
    await asyncio.sleep(2 * TTL - 1)
    assert await resolver.names.resolve("broker", PORT) == good
    await asyncio.sleep(1)
    with pytest.raises(TargetRefused):
        await resolver.names.resolve("broker", PORT)


@virtually(resolver_of)
async def test_a_name_that_is_gone_serves_no_longer(resolver: Resolver) -> None:
    await resolver.names.resolve("broker", PORT)
    resolver.error = NO_SUCH_NAME
    await asyncio.sleep(TTL)
    await resolver.names.resolve("broker", PORT)
    await asyncio.sleep(1)
    with pytest.raises(TargetRefused):
        await resolver.names.resolve("broker", PORT)


@pytest.mark.threat("stale-broker-address")
@pytest.mark.parametrize("hangs", [True, False])
@virtually(resolver_of)
async def test_a_stale_answer_never_leads_to_an_address_that_failed(resolver: Resolver, hangs: bool) -> None:
    await resolver.names.resolve("broker", PORT)
    resolver.fails(hangs=hangs)
    resolver.names.address_failed("broker", PORT, "192.0.2.1")
    await asyncio.sleep(TTL)
    assert await resolver.names.resolve("broker", PORT) == ["2001:db8::1"]
    await asyncio.sleep(1)
    resolver.names.address_failed("broker", PORT, "2001:db8::1")
    with pytest.raises(TargetRefused):
        await resolver.names.resolve("broker", PORT)


@virtually(resolver_of)
async def test_an_address_that_failed_serves_again_when_it_is_found_again(resolver: Resolver) -> None:
    await resolver.names.resolve("broker", PORT)
    resolver.names.address_failed("broker", PORT, "192.0.2.1")
    await asyncio.sleep(1)
    good = await resolver.names.resolve("broker", PORT, 0.5)
    resolver.gate.clear()
    await asyncio.sleep(TTL)
    assert await resolver.names.resolve("broker", PORT) == good


@pytest.mark.threat("stale-broker-address")
@pytest.mark.parametrize("hangs", [True, False])
@virtually(resolver_of)
async def test_what_fails_for_another_name_or_port_takes_nothing_from_a_name(resolver: Resolver, hangs: bool) -> None:
    good = await resolver.names.resolve("broker", PORT)
    # A client's own name may lead to the broker's addresses, and fail there as the client likes.
    await resolver.names.resolve("stranger", PORT)
    resolver.fails(hangs=hangs)
    await asyncio.sleep(1)
    for address in good:
        resolver.names.address_failed("stranger", PORT, address)
        resolver.names.address_failed("broker", PORT + 1, address)
    await asyncio.sleep(TTL)
    for name, port in (("stranger", PORT), ("broker", PORT + 1)):
        with pytest.raises(TargetRefused):
            await resolver.names.resolve(name, port)
    assert await resolver.names.resolve("broker", PORT) == good


@virtually(resolver_of)
async def test_failures_that_are_forgotten_count_against_their_own_name_only(resolver: Resolver) -> None:
    good = await resolver.names.resolve("broker", PORT)
    await resolver.names.resolve("stranger", PORT)
    resolver.gate.clear()
    await asyncio.sleep(1)
    for number in range(2 * MOST_FAILED):
        resolver.names.address_failed("stranger", number, good[0])
    await asyncio.sleep(TTL)
    assert await resolver.names.resolve("broker", PORT) == good
    with pytest.raises(TargetRefused):
        await resolver.names.resolve("stranger", PORT)


@pytest.mark.threat("stale-broker-address")
@virtually(resolver_of, stale_serves=False)
async def test_where_credentials_would_be_shown_to_anybody_no_stale_answer_serves(resolver: Resolver) -> None:
    await resolver.names.resolve("broker", PORT)
    resolver.error = RESOLVER_DOWN
    await asyncio.sleep(TTL)
    with pytest.raises(TargetRefused, match="try again"):
        await resolver.names.resolve("broker", PORT)


async def swallow(question: Awaitable[list[str]]) -> None:
    with suppress(TargetRefused):
        await question


@virtually(resolver_of)
async def test_equal_questions_are_asked_once(resolver: Resolver) -> None:
    resolver.gate.clear()
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(resolver.names.resolve("broker", PORT)) for _ in range(10)]
        await asyncio.sleep(1)
        asked[0].cancel()
        resolver.gate.set()
    assert resolver.asked == ["broker"]
    assert all(task.result() == asked[1].result() for task in asked[1:])


@virtually(resolver_of, at_once=1)
async def test_a_query_that_hangs_is_given_up_and_leaves_its_slot_to_others(resolver: Resolver) -> None:
    resolver.hanging = {"slow"}
    began = resolver.loop.time()
    with pytest.raises(TargetRefused, match="host 'slow' was not resolved within 10 s"):
        await resolver.names.resolve("slow", PORT)
    assert resolver.loop.time() - began == pytest.approx(RESOLVE_SECONDS)
    assert await resolver.names.resolve("another", PORT)
    assert resolver.names.hanging == 1
    # A late answer serves.
    resolver.released.set()
    await asyncio.sleep(1)
    assert resolver.names.hanging == 0
    assert await resolver.names.resolve("slow", PORT)
    assert resolver.asked == ["slow", "another"]


@pytest.mark.threat("hanging-name-threads")
@virtually(resolver_of)
async def test_a_known_name_that_hangs_for_ever_leaves_its_slot_to_other_known_names(resolver: Resolver) -> None:
    names = [f"hung-{number}" for number in range(KNOWN_AT_ONCE)]
    for name in [*names, "broker"]:
        await resolver.names.resolve(name, PORT)
    resolver.hanging = set(names)
    await asyncio.sleep(2 * TTL)
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(swallow(resolver.names.resolve(name, PORT)))
    resolver.addresses = ["192.0.2.2"]
    assert await resolver.names.resolve("broker", PORT) == ["192.0.2.2"]


@pytest.mark.threat("hanging-name-threads")
@virtually(resolver_of)
async def test_threads_that_hang_are_bounded_for_each_name_and_for_all(resolver: Resolver) -> None:
    resolver.gate.clear()
    for _ in range(MOST_HANGING_OF_A_NAME):
        await swallow(resolver.names.resolve("hung", PORT))
    with pytest.raises(TargetRefused, match="2 queries for it hang in the system's resolver"):
        await resolver.names.resolve("hung", PORT)
    for number in range(2 * MOST_HANGING):
        await swallow(resolver.names.resolve(f"strange-{number}", PORT))
    assert len(resolver.asked) == MOST_HANGING + AT_ONCE
    assert resolver.names.hanging == MOST_HANGING + AT_ONCE
    resolver.gate.set()
    await asyncio.sleep(1)
    assert resolver.names.hanging == 0
    assert await resolver.names.resolve("hung", PORT)
    # The names behind them had nobody left who waited, and were never asked.
    assert len(resolver.asked) == MOST_HANGING + AT_ONCE


@virtually(resolver_of)
async def test_a_name_that_is_too_long_is_refused_and_not_asked_for(resolver: Resolver) -> None:
    with pytest.raises(TargetRefused, match="has 60000 characters, expected at most 253"):
        await resolver.names.resolve("x" * 60_000, PORT)
    assert not resolver.asked


@virtually(resolver_of)
async def test_no_more_answers_are_kept_than_there_is_room_for(resolver: Resolver) -> None:
    for number in range(MOST_ANSWERS + 10):
        await resolver.names.resolve(f"host-{number}", PORT)
    await resolver.names.resolve("host-0", PORT)
    assert len(resolver.asked) == MOST_ANSWERS + 11
