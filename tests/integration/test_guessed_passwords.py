"""Guessers of passwords, and a client that no proof of is known yet: it gets in before the guessers do.

The checks are fake and end when the test says so: what counts is how many checks of others come before one's own.
"""

import asyncio
import base64
import hashlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import pytest

from protocol.pb import PulsarApi_pb2 as pb
from tests.support.auth.slow_checks import CountedChecks
from tests.support.clients.async_client import LOOPBACK, AsyncClient, connect_frame
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.web.web_stage import ADMIN, web_staged

GUESSERS = 40
HOME = "127.0.0.2"
HASH = "{SHA}" + base64.b64encode(hashlib.sha1(b"other", usedforsecurity=False).digest()).decode()
USERS = "".join(f"{user}:{HASH}\n" for user in ("alice", "bob"))
# The guess that is being checked when the client comes, and one more.
MOST_BEFORE = 2


def keys() -> dict[str, Any]:
    return {
        "authenticationEnabled": "true", "authenticationProviders": "basic", "maxConcurrentAuthentications": 1,
        "basicAuthConf": f"data:;base64,{base64.b64encode(USERS.encode()).decode()}",
        # Nobody who waits gives up before the test is over.
        "handshakeTimeoutMillis": 120_000,
    }  # fmt: skip


async def presents(stage: Stage, address: str, user: str, password: str) -> AsyncClient:
    """Connect from an address of the loopback network, and send a user and a password."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.bind((address, 0))
    await asyncio.get_running_loop().sock_connect(sock, (LOOPBACK, stage.proxy.port))
    client = AsyncClient(sock)
    stage.clients.append(client)
    await client.send(connect_frame(auth_method_name="basic", auth_data=f"{user}:{password}".encode()))
    return client


async def in_line(stage: Stage, number: int) -> None:
    authentication = stage.proxy.services.authentication
    assert authentication is not None
    await stage.until(lambda: authentication.under_way == number, f"{number} checks waiting or under way")


def _more(asked: list[bytes], than: int) -> bool:
    return len(asked) > than


async def before_right(stage: Stage, checks: CountedChecks) -> int:
    """End one check after the other until the right password is being checked; return how many came before."""
    while b"sesame" not in checks.asked:
        begun = len(checks.asked)
        checks.end()
        await stage.until(partial(_more, checks.asked, begun), "the next check")
    return checks.asked.index(b"sesame")


async def alice_is_soon_connected(stage: Stage, checks: CountedChecks, address: str) -> None:
    """Present the right password behind all guesses, and see it checked after a few of them."""
    alice = await presents(stage, address, "alice", "sesame")
    await in_line(stage, GUESSERS + 1)
    assert await before_right(stage, checks) <= MOST_BEFORE
    checks.end(GUESSERS)
    assert (await alice.command()).type == pb.BaseCommand.CONNECTED


@asynccontextmanager
async def guessed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Stage, CountedChecks]]:
    checks = CountedChecks(monkeypatch)
    async with staged(**keys()) as stage:
        try:
            yield stage, checks
        finally:
            checks.end(10 * GUESSERS)


@pytest.mark.threat("password-guesses-crowd-out")
async def test_guessers_of_one_address_hold_up_no_client_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async with guessed(monkeypatch) as (stage, checks):
        for number in range(GUESSERS):
            await presents(stage, LOOPBACK, f"user{number}", f"guess {number}")
        await in_line(stage, GUESSERS)
        await alice_is_soon_connected(stage, checks, HOME)


@pytest.mark.threat("password-guesses-crowd-out")
async def test_guesses_of_one_user_hold_up_no_other_user_of_their_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async with guessed(monkeypatch) as (stage, checks):
        for number in range(GUESSERS):
            await presents(stage, LOOPBACK, "bob", f"guess {number}")
        await in_line(stage, GUESSERS)
        await alice_is_soon_connected(stage, checks, LOOPBACK)


@pytest.mark.threat("password-guesses-crowd-out")
async def test_many_addresses_that_guess_a_user_do_not_hold_up_that_user(monkeypatch: pytest.MonkeyPatch) -> None:
    async with guessed(monkeypatch) as (stage, checks):
        addresses = [f"127.0.1.{number + 1}" for number in range(GUESSERS)]
        checks.end(GUESSERS)
        for address in addresses:
            await presents(stage, address, "alice", f"first of {address}")
        await in_line(stage, 0)
        checks.asked.clear()
        for address in addresses:
            await presents(stage, address, "alice", f"second of {address}")
        await in_line(stage, GUESSERS)
        await alice_is_soon_connected(stage, checks, HOME)


async def test_a_wrong_password_that_many_clients_repeat_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with guessed(monkeypatch) as (stage, checks):
        checks.end(GUESSERS)
        for _ in range(GUESSERS):
            await presents(stage, LOOPBACK, "alice", "the old one")
        await stage.until(lambda: stage.caused("authentication_failed") == GUESSERS, "all of them refused")
        assert checks.asked == [b"the old one"]
        # They delay nobody, not even the pair of address and user that is theirs.
        right = await presents(stage, LOOPBACK, "alice", "sesame")
        assert (await right.command()).type == pb.BaseCommand.CONNECTED


@pytest.mark.threat("password-guesses-crowd-out")
async def test_addresses_that_a_web_client_makes_up_are_one_client_for_the_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks = CountedChecks(monkeypatch)

    async def asks(said: str, user: str, password: str) -> int:
        """Ask as a balancer does that any client can reach: it adds the address that it has seen."""
        basic = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        headers = {"Authorization": basic, "X-Forwarded-For": said}
        async with at.client.get(at.url + ADMIN, headers=headers) as answer:
            return answer.status

    async with web_staged(**keys(), webServiceTrustXForwardedFor="true") as at, asyncio.TaskGroup() as group:
        made_up = [f"198.51.100.{number}, 203.0.113.66" for number in range(GUESSERS)]
        guesses = [group.create_task(asks(said, f"user{n}", f"guess {n}")) for n, said in enumerate(made_up)]
        try:
            await in_line(at.stage, GUESSERS)
            alice = group.create_task(asks("203.0.113.1", "alice", "sesame"))
            await in_line(at.stage, GUESSERS + 1)
            assert await before_right(at.stage, checks) <= MOST_BEFORE
        finally:
            checks.end(10 * GUESSERS)
        assert {await guess for guess in guesses} == {401}
        assert await alice == 200


@pytest.mark.threat("password-guesses-crowd-out")
async def test_guessers_at_the_web_port_hold_up_no_client_of_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = CountedChecks(monkeypatch)

    async def asks(address: str, user: str, password: str) -> int:
        connector = aiohttp.TCPConnector(local_addr=(address, 0))
        said = {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
        async with (
            aiohttp.ClientSession(connector=connector, headers=said) as client,
            client.get(at.url + ADMIN) as answer,
        ):
            return answer.status

    async with web_staged(**keys()) as at, asyncio.TaskGroup() as group:
        guesses = [group.create_task(asks(LOOPBACK, f"user{n}", f"guess {n}")) for n in range(GUESSERS)]
        try:
            await in_line(at.stage, GUESSERS)
            alice = group.create_task(asks(HOME, "alice", "sesame"))
            await in_line(at.stage, GUESSERS + 1)
            assert await before_right(at.stage, checks) <= MOST_BEFORE
        finally:
            checks.end(10 * GUESSERS)
        assert {await guess for guess in guesses} == {401}
        assert await alice == 200
