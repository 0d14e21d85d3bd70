"""Names are resolved once for all who ask, kept for a while, and never let a resolver that hangs take everything."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

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
from proxy.core.task_turns import TASKS_PER_TURN
from tests.support.loops.loops import LoopFactory, both_loops, eventually, most_in_an_iteration, run_on, run_virtual

TTL = 30.0
PORT = 6650
NO_SUCH_NAME = socket.gaierror(socket.EAI_NONAME, "no such name")
RESOLVER_DOWN = socket.gaierror(socket.EAI_AGAIN, "try again")


class Budget(LoopBudget):
    """Gives no turns while there is a list that holds them."""

    held: list[Callable[[], None]] | None = None

    def defer_cheap(self, function: Callable[[], None]) -> None:
        if self.held is None:
            super().defer_cheap(function)
        else:
            self.held.append(function)


class Resolver:
    """A system's resolver: counts questions, answers or fails, or waits for `gate`."""

    def __init__(self, at_once: int = 2, *, stale_serves: bool = True) -> None:
        self.loop = asyncio.get_running_loop()
        self.asked: list[str] = []
        self.addresses = ["192.0.2.1", "192.0.2.1", "2001:db8::1"]
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.hanging: set[str] = set()
        self.released = asyncio.Event()
        self.crashes: list[BaseException] = []
        self.budget = Budget(self.loop, self.loop.time)
        self.names = CachingResolver(
            self.loop, TTL, at_once, self.crashes.append, self.budget, self.ask, stale_serves=stale_serves
        )

    async def ask(self, name: str) -> list[str]:
        self.asked.append(name)
        await self.gate.wait()
        if name in self.hanging:
            await self.released.wait()
        if self.error is not None:
            raise self.error
        return self.addresses


def resolving(
    at_once: int = 2, *, stale_serves: bool = True
) -> Callable[[Callable[[Resolver], Awaitable[None]]], None]:
    """Run a test's body with a resolver in virtual time, and see that nothing crashed."""

    def run(body: Callable[[Resolver], Awaitable[None]]) -> None:
        async def main() -> None:
            resolver = Resolver(at_once, stale_serves=stale_serves)
            await body(resolver)
            resolver.gate.set()
            await resolver.names.close()
            assert not resolver.crashes

        run_virtual(main())

    return run


def test_an_address_is_its_own_answer() -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
        assert await resolver.names.resolve("192.0.2.7", PORT) == ["192.0.2.7"]
        assert await resolver.names.resolve("2001:db8::7", PORT) == ["2001:db8::7"]
        assert not resolver.asked


def test_an_answer_is_kept_for_its_time_whatever_the_letters() -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
        assert await resolver.names.resolve("Broker", PORT) == ["192.0.2.1", "2001:db8::1"]
        await asyncio.sleep(TTL - 1)
        await resolver.names.resolve("broker", PORT)
        assert resolver.asked == ["broker"]
        await asyncio.sleep(1)
        await resolver.names.resolve("broker", PORT)
        await asyncio.sleep(0)
        assert resolver.asked == ["broker"] * 2


def test_who_needs_a_fresh_answer_gets_one_and_others_have_it_too() -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
        await resolver.names.resolve("broker", PORT)
        await asyncio.sleep(2)
        resolver.addresses = ["192.0.2.2"]
        assert await resolver.names.resolve("broker", PORT, 1.0) == ["192.0.2.2"]
        assert await resolver.names.resolve("broker", PORT) == ["192.0.2.2"]
        assert len(resolver.asked) == 2


def test_a_name_that_does_not_resolve_is_asked_for_again_sooner() -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
        resolver.error = NO_SUCH_NAME
        for _ in range(2):
            with pytest.raises(TargetRefused, match="host 'broker' cannot be resolved: no such name"):
                await resolver.names.resolve("broker", PORT)
        assert len(resolver.asked) == 1
        resolver.error = None
        await asyncio.sleep(TTL / 10)
        assert await resolver.names.resolve("broker", PORT)


def test_a_stale_answer_serves_at_once_while_the_new_one_is_asked_for() -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
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


@pytest.mark.parametrize("hangs", [True, False])
def test_a_stale_answer_serves_for_no_more_than_another_ttl(hangs: bool) -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
        good = await resolver.names.resolve("broker", PORT)
        if hangs:
            resolver.gate.clear()
        else:
            resolver.error = RESOLVER_DOWN
        await asyncio.sleep(2 * TTL - 1)
        assert await resolver.names.resolve("broker", PORT) == good
        await asyncio.sleep(1)
        with pytest.raises(TargetRefused):
            await resolver.names.resolve("broker", PORT)


def test_a_name_that_is_gone_serves_no_longer() -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
        await resolver.names.resolve("broker", PORT)
        resolver.error = NO_SUCH_NAME
        await asyncio.sleep(TTL)
        await resolver.names.resolve("broker", PORT)
        await asyncio.sleep(1)
        with pytest.raises(TargetRefused):
            await resolver.names.resolve("broker", PORT)


@pytest.mark.parametrize("hangs", [True, False])
def test_a_stale_answer_never_leads_to_an_address_that_failed(hangs: bool) -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
        await resolver.names.resolve("broker", PORT)
        if hangs:
            resolver.gate.clear()
        else:
            resolver.error = RESOLVER_DOWN
        resolver.names.address_failed("broker", PORT, "192.0.2.1")
        await asyncio.sleep(TTL)
        assert await resolver.names.resolve("broker", PORT) == ["2001:db8::1"]
        await asyncio.sleep(1)
        resolver.names.address_failed("broker", PORT, "2001:db8::1")
        with pytest.raises(TargetRefused):
            await resolver.names.resolve("broker", PORT)


def test_an_address_that_failed_serves_again_when_it_is_found_again() -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
        await resolver.names.resolve("broker", PORT)
        resolver.names.address_failed("broker", PORT, "192.0.2.1")
        await asyncio.sleep(1)
        good = await resolver.names.resolve("broker", PORT, 0.5)
        resolver.gate.clear()
        await asyncio.sleep(TTL)
        assert await resolver.names.resolve("broker", PORT) == good


def test_failed_addresses_beyond_those_that_are_remembered_make_no_answer_serve_longer() -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
        await resolver.names.resolve("broker", PORT)
        await asyncio.sleep(1)
        for number in range(MOST_FAILED + 1):
            resolver.names.address_failed("broker", PORT, f"address {number}")
        assert len(resolver.names._failed_at) == MOST_FAILED
        resolver.gate.clear()
        await asyncio.sleep(TTL)
        with pytest.raises(TargetRefused, match="was not resolved within"):
            await resolver.names.resolve("broker", PORT)


@pytest.mark.threat("stale-broker-address")
@pytest.mark.parametrize("hangs", [True, False])
def test_what_fails_for_another_name_or_port_takes_nothing_from_a_name(hangs: bool) -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
        good = await resolver.names.resolve("broker", PORT)
        # A client's own name may lead to the broker's addresses, and fail there as the client likes.
        await resolver.names.resolve("stranger", PORT)
        if hangs:
            resolver.gate.clear()
        else:
            resolver.error = RESOLVER_DOWN
        await asyncio.sleep(1)
        for address in good:
            resolver.names.address_failed("stranger", PORT, address)
            resolver.names.address_failed("broker", PORT + 1, address)
        await asyncio.sleep(TTL)
        for name, port in (("stranger", PORT), ("broker", PORT + 1)):
            with pytest.raises(TargetRefused):
                await resolver.names.resolve(name, port)
        assert await resolver.names.resolve("broker", PORT) == good


def test_failures_that_are_forgotten_count_against_their_own_name_only() -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
        good = await resolver.names.resolve("broker", PORT)
        await resolver.names.resolve("stranger", PORT)
        resolver.gate.clear()
        await asyncio.sleep(1)
        for number in range(2 * MOST_FAILED):
            resolver.names.address_failed("stranger", number, good[0])
            resolver.names.address_failed(f"never resolved {number}", PORT, good[0])
        assert len(resolver.names._failed_at) == MOST_FAILED
        await asyncio.sleep(TTL)
        assert await resolver.names.resolve("broker", PORT) == good
        with pytest.raises(TargetRefused):
            await resolver.names.resolve("stranger", PORT)


@pytest.mark.threat("stale-broker-address")
def test_where_credentials_would_be_shown_to_anybody_no_stale_answer_serves() -> None:
    @resolving(stale_serves=False)
    async def _(resolver: Resolver) -> None:
        await resolver.names.resolve("broker", PORT)
        resolver.error = RESOLVER_DOWN
        await asyncio.sleep(TTL)
        with pytest.raises(TargetRefused, match="try again"):
            await resolver.names.resolve("broker", PORT)


def test_names_that_have_resolved_do_not_wait_for_names_that_never_did() -> None:
    @resolving(at_once=1)
    async def _(resolver: Resolver) -> None:
        await resolver.names.resolve("broker", PORT)
        resolver.gate.clear()
        async with asyncio.TaskGroup() as group:
            strangers = [group.create_task(swallow(resolver.names.resolve(f"strange-{n}", PORT))) for n in range(20)]
            await asyncio.sleep(2)
            known = group.create_task(swallow(resolver.names.resolve("broker", PORT, 1.0)))
            await asyncio.sleep(1)
            assert resolver.asked == ["broker", "strange-0", "broker"]
            resolver.gate.set()
            await known
            for stranger in strangers:
                stranger.cancel()


async def swallow(question: Awaitable[list[str]]) -> None:
    with suppress(TargetRefused):
        await question


@pytest.mark.threat("made-up-names")
@both_loops
def test_names_that_hang_in_the_system_leave_others_their_threads(
    loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two resolvers on a real loop, as the proxy has them; the system's resolver hangs for one half of the names."""
    released = threading.Event()
    hanging_names: list[str] = []

    def getaddrinfo(host: str, *_: object, **__: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        if host.startswith("hanging"):
            hanging_names.append(host)
            released.wait()
        return [(2, 1, 6, "", ("192.0.2.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def main() -> None:
        loop, crashes = asyncio.get_running_loop(), list[BaseException]()
        clients, own = (CachingResolver(loop, TTL, 4, crashes.append, LoopBudget(loop, loop.time)) for _ in range(2))
        async with asyncio.TaskGroup() as group:
            hanging = [group.create_task(swallow(clients.resolve(f"hanging-{n}", PORT))) for n in range(50)]
            await eventually(lambda: len(hanging_names) == 4, "four threads that hang")
            assert await own.resolve("broker", PORT) == ["192.0.2.1"]
            assert len(hanging_names) == 4
            for each in hanging:
                each.cancel()
        await clients.close()
        await own.close()
        assert not crashes

    try:
        run_on(loop_factory, main())
    finally:
        released.set()


def test_equal_questions_are_asked_once() -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
        resolver.gate.clear()
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(resolver.names.resolve("broker", PORT)) for _ in range(10)]
            await asyncio.sleep(1)
            asked[0].cancel()
            resolver.gate.set()
        assert resolver.asked == ["broker"]
        assert all(task.result() == asked[1].result() for task in asked[1:])


def test_a_query_that_hangs_is_given_up_and_leaves_its_slot_to_others() -> None:
    @resolving(at_once=1)
    async def _(resolver: Resolver) -> None:
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
def test_a_known_name_that_hangs_for_ever_leaves_its_slot_to_other_known_names() -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
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


def test_a_name_that_hung_once_is_asked_again() -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
        resolver.hanging = {"broker"}
        await swallow(resolver.names.resolve("broker", PORT))
        resolver.hanging = set()
        assert await resolver.names.resolve("broker", PORT)


@pytest.mark.threat("hanging-name-threads")
def test_threads_that_hang_are_bounded_for_each_name_and_for_all() -> None:
    at_once = 2

    @resolving(at_once)
    async def _(resolver: Resolver) -> None:
        resolver.gate.clear()
        for _ in range(MOST_HANGING_OF_A_NAME):
            await swallow(resolver.names.resolve("hung", PORT))
        with pytest.raises(TargetRefused, match="2 queries for it hang in the system's resolver"):
            await resolver.names.resolve("hung", PORT)
        for number in range(2 * MOST_HANGING):
            await swallow(resolver.names.resolve(f"strange-{number}", PORT))
        assert len(resolver.asked) == MOST_HANGING + at_once
        assert resolver.names.hanging == MOST_HANGING + at_once
        resolver.gate.set()
        await asyncio.sleep(1)
        assert resolver.names.hanging == 0
        assert await resolver.names.resolve("hung", PORT)
        # The names behind them had nobody left who waited, and were never asked.
        assert len(resolver.asked) == MOST_HANGING + at_once


def test_a_late_answer_replaces_none_that_was_found_since() -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
        resolver.hanging = {"broker"}
        await swallow(resolver.names.resolve("broker", PORT))
        resolver.hanging = set()
        resolver.addresses = ["192.0.2.2"]
        assert await resolver.names.resolve("broker", PORT) == ["192.0.2.2"]
        resolver.addresses = ["192.0.2.1"]
        resolver.released.set()
        await asyncio.sleep(1)
        assert await resolver.names.resolve("broker", PORT) == ["192.0.2.2"]


def test_a_name_that_is_too_long_is_refused_and_not_kept() -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
        with pytest.raises(TargetRefused, match="has 60000 characters, expected at most 253"):
            await resolver.names.resolve("x" * 60_000, PORT)
        assert not resolver.asked
        assert not resolver.names._answers


def test_no_more_answers_are_kept_than_there_is_room_for() -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
        for number in range(MOST_ANSWERS + 10):
            await resolver.names.resolve(f"host-{number}", PORT)
        assert len(resolver.names._answers) == MOST_ANSWERS
        await resolver.names.resolve("host-0", PORT)
        assert resolver.asked[-1] == "host-0"


@pytest.mark.threat("waiters-in-one-step")
def test_clients_of_one_name_go_on_a_few_in_an_iteration() -> None:
    @resolving()
    async def _(resolver: Resolver) -> None:
        resolver.gate.clear()
        found = list[list[str]]()

        async def ask() -> None:
            found.append(await resolver.names.resolve("broker", PORT))

        async with asyncio.TaskGroup() as group:
            for _ in range(200):
                group.create_task(ask())
            await asyncio.sleep(0)
            resolver.gate.set()
            assert await most_in_an_iteration(lambda: len(found), 200) <= TASKS_PER_TURN
        assert resolver.asked == ["broker"]


def test_an_answer_that_came_serves_who_still_stands_in_line_at_the_end_of_its_time() -> None:
    @resolving(stale_serves=False)
    async def _(resolver: Resolver) -> None:
        resolver.gate.clear()
        with_line = [resolver.loop.create_task(resolver.names.resolve("broker", PORT)) for _ in range(200)]
        await asyncio.sleep(RESOLVE_SECONDS - 0.1)
        # From now on nobody has a turn.
        held = resolver.budget.held = []
        resolver.gate.set()
        await asyncio.sleep(0.2)
        assert held
        assert await asyncio.gather(*with_line) == [["192.0.2.1", "2001:db8::1"]] * 200
