"""Clients get their turns in an order that guessers do not change."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.auth import check_turns
from proxy.auth.check_turns import CheckTurns
from proxy.auth.failed_guesses import LONGEST_DELAY_SECONDS
from proxy.auth.identity import AuthenticationFailed
from tests.support.clients.list_clients import turns
from tests.support.loops.clock import ManualClock

GUESSER = "192.0.2.66:1000"
HOME = "192.0.2.1:1000"


class Checks:
    """A verifier whose checks last until a test ends them, and the order in which they began."""

    def __init__(self, group: asyncio.TaskGroup, places: int, most_waiting: int) -> None:
        self._group = group
        self.clock = ManualClock()
        self.turns = CheckTurns(self.clock, places, most_waiting)
        self.began: list[str] = []
        self.busy: list[str] = []
        self._ends: dict[str, asyncio.Future[bool]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def arrive(self, name: str, client: str, user: str) -> None:
        """Have a client ask for a check; `name` stands for it in `began`."""
        self._tasks[name] = self._group.create_task(self._check(name, client, user))
        await turns(2)

    async def _check(self, name: str, client: str, user: str) -> None:
        try:
            async with self.turns.turn(client, user):
                self.began.append(name)
                self._ends[name] = asyncio.get_running_loop().create_future()
                if not await self._ends[name]:
                    raise AuthenticationFailed("wrong")
        except AuthenticationFailed as failure:
            if failure.busy:
                self.busy.append(name)

    async def end(self, name: str, *, right: bool = False) -> None:
        """End a check that has begun."""
        self._ends[name].set_result(right)
        await self._tasks[name]
        await asyncio.sleep(0)

    async def leave(self, name: str) -> None:
        """Have a client leave, wherever it is."""
        self._tasks[name].cancel()
        await asyncio.wait([self._tasks[name]])
        await asyncio.sleep(0)

    async def fail_once(self, *clients: str, user: str = "alice") -> None:
        """Have one wrong guess of each client checked."""
        for client in clients:
            await self.arrive(f"once {client}", client, user)
            assert f"once {client}" in self.began
            await self.end(f"once {client}")
        self.began.clear()

    async def run(self, number: int) -> None:
        """Let so many checks go through, each of them wrong."""
        for _ in range(number):
            running = [name for name in self.began if not self._tasks[name].done()]
            await self.end(running[0])

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.wait(self._tasks.values())
        await asyncio.sleep(0)


@asynccontextmanager
async def checks(places: int = 1, most_waiting: int = 1000) -> AsyncIterator[Checks]:
    """Run checks; in the end nothing is left of any client."""
    async with asyncio.TaskGroup() as group:
        held = Checks(group, places, most_waiting)
        yield held
        await held.stop()
    assert (held.turns.running, held.turns.waiting, held.clock.pending) == (0, 0, 0)


async def test_guessers_of_many_ipv6_networks_of_one_site_delay_another_site_by_one_check() -> None:
    async with checks() as held:
        for number in range(400):
            await held.arrive(f"guess {number}", f"[2001:db8:1:{number:x}::1]:1", f"user {number}")
        await held.arrive("alice", "[2001:db8:2::1]:1", "alice")
        await held.arrive("bob", HOME, "bob")
        await held.run(3)
        assert set(held.began[:4]) >= {"alice", "bob"}


@pytest.mark.threat("password-guesses-crowd-out")
async def test_a_site_takes_no_place_of_another_with_all_its_ipv6_networks() -> None:
    async with checks(most_waiting=10) as held:
        for number in range(11):
            await held.arrive(f"guess {number}", f"[2001:db8:1:{number:x}::1]:1", f"user {number}")
        await held.arrive("guess 11", "[2001:db8:1:ffff::1]:1", "one more")
        assert held.busy == ["guess 11"]
        await held.arrive("alice", "[2001:db8:2::1]:1", "alice")
        assert "alice" not in held.busy
        assert len(held.busy) == 2


async def test_clients_behind_a_guessing_address_still_have_every_fourth_check() -> None:
    async with checks() as held:
        await held.fail_once(HOME, user="bob")
        for number in range(40):
            await held.arrive(f"stranger {number}", f"203.0.113.{number}:1", "somebody")
        await held.arrive("alice", HOME, "alice")
        await held.run(5)
        assert "alice" in held.began[:5]


async def test_inside_a_site_networks_that_failed_come_after_others() -> None:
    guessers = [f"[2001:db8:1:{number:x}::1]:1" for number in range(6)]
    async with checks() as held:
        await held.fail_once(*guessers)
        await held.arrive("first", HOME, "bob")
        for guesser in guessers:
            await held.arrive(guesser, guesser, "made up")
        await held.arrive("alice", "[2001:db8:1:ffff::1]:1", "alice")
        await held.run(1)
        assert held.began == ["first", "alice"]


async def test_inside_an_address_users_whose_passwords_were_wrong_come_after_others() -> None:
    async with checks() as held:
        for number in range(6):
            await held.fail_once(HOME, user=f"guessed {number}")
        held.clock.advance(LONGEST_DELAY_SECONDS)
        await held.arrive("first", GUESSER, "bob")
        for number in range(6):
            await held.arrive(f"guess {number}", HOME, f"guessed {number}")
        await held.arrive("alice", HOME, "alice")
        await held.run(1)
        assert held.began == ["first", "alice"]


async def test_a_pair_that_failed_is_checked_again_only_after_its_delay_and_one_at_a_time() -> None:
    async with checks(places=2) as held:
        await held.fail_once(GUESSER)
        for number in range(3):
            await held.arrive(f"guess {number}", GUESSER, "alice")
        assert held.began == []
        held.clock.advance(0.25)
        await turns(2)
        assert held.began == ["guess 0"]
        await held.end("guess 0")
        assert held.began == ["guess 0"]
        held.clock.advance(0.5)
        await turns(2)
        assert held.began == ["guess 0", "guess 1"]
        # The right password ends the delay of those behind it.
        await held.end("guess 1", right=True)
        await asyncio.sleep(0)
        assert held.began == ["guess 0", "guess 1", "guess 2"]


async def test_a_guesser_that_leaves_during_its_check_is_delayed_too() -> None:
    async with checks() as held:
        await held.arrive("guess 0", GUESSER, "alice")
        await held.leave("guess 0")
        await held.arrive("guess 1", GUESSER, "alice")
        assert held.began == ["guess 0"]
        held.clock.advance(LONGEST_DELAY_SECONDS)
        await turns(2)
        assert held.began == ["guess 0", "guess 1"]


async def test_a_client_that_leaves_while_it_waits_is_no_guesser_and_frees_its_place() -> None:
    async with checks() as held:
        await held.arrive("first", HOME, "alice")
        await held.arrive("second", HOME, "alice")
        await held.arrive("third", HOME, "alice")
        await held.leave("second")
        assert held.turns.waiting == 1
        await held.end("first", right=True)
        await asyncio.sleep(0)
        assert held.began == ["first", "third"]


async def test_many_addresses_that_failed_make_room_for_one_that_did_not() -> None:
    guessers = [f"198.51.100.{number}:1" for number in range(11)]
    async with checks(most_waiting=10) as held:
        await held.fail_once(*guessers)
        for guesser in guessers:
            await held.arrive(guesser, guesser, "made up")
        await held.arrive("alice", HOME, "alice")
        assert len(held.busy) == 1
        await held.run(1)
        assert held.began[1] == "alice"
        for number in range(9):
            await held.arrive(f"new {number}", f"203.0.113.{number}:1", "somebody")
        await held.arrive("the eleventh", "203.0.113.200:1", "somebody")
        assert "the eleventh" not in held.busy
        await held.arrive("the twelfth", "203.0.113.201:1", "somebody")
        assert held.busy[-1] == "the twelfth"


async def test_few_clients_of_a_pair_that_failed_may_wait() -> None:
    async with checks() as held:
        await held.fail_once(GUESSER)
        for number in range(check_turns.MOST_WAITING_AFTER_FAILURE + 5):
            await held.arrive(f"guess {number}", GUESSER, "alice")
        assert len(held.busy) == 5
        assert held.turns.waiting == check_turns.MOST_WAITING_AFTER_FAILURE
