"""SIGTERM while clients attack in all ways at once: the proxy ends in its time, with 0, without an error of its own.

The attackers go on until the proxy is gone: they flood, drip, guess, ask and do not read, and come back at once.
"""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from protocol.commands import PING_FRAME, PONG_FRAME
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.auth.credentials import presenting
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.clients.async_client import (
    AsyncClient,
    Closed,
    eventually,
    lookup_frame,
    new_schema_frame,
    schema_frame,
    topics_frame,
)
from tests.support.patience import in_time
from tests.support.proxies.running_proxy import Running, child_proxy

EACH = 6
TOPIC = "persistent://demo/ns-0/topic"
GOES_AWAY = (OSError, Closed, TimeoutError)


def with_password(password: str) -> bytes:
    return presenting("", auth_method_name="basic", auth_data=f"alice:{password}".encode())


async def floods(client: AsyncClient, number: int) -> None:
    """Send PINGs, PONGs, lookups, lists and schemas without reading an answer."""
    await client.send(with_password("sesame"))
    frames = PING_FRAME + PONG_FRAME + lookup_frame(1, TOPIC) + schema_frame(2, TOPIC) + topics_frame(3, "demo/ns-0")
    for _ in range(100_000):
        client.flood(frames * 20)
        await asyncio.sleep(0)


async def guesses(client: AsyncClient, number: int) -> None:
    await client.send(with_password(f"guess {number} {random.random()}"))
    await client.rest()


async def drips(client: AsyncClient, number: int) -> None:
    for byte in with_password("sesame"):
        await client.send(bytes([byte]))
        await asyncio.sleep(0.01)
    await client.rest()


async def uploads(client: AsyncClient, number: int) -> None:
    """Announce a large request, and send half of that."""
    await client.send(with_password("sesame"))
    whole = new_schema_frame(1, f"{TOPIC}-{number}", 200_000)
    await client.send(whole[: len(whole) // 2])
    await client.rest()


async def resets(client: AsyncClient, number: int) -> None:
    await client.send(with_password("sesame") + topics_frame(1, "demo/ns-0"))
    await asyncio.sleep(0.01)
    client.reset()


ATTACKS: tuple[Callable[[AsyncClient, int], Awaitable[None]], ...] = (floods, guesses, drips, uploads, resets)


async def attacking(proxy: Running, attack: Callable[[AsyncClient, int], Awaitable[None]], number: int) -> None:
    while True:
        with suppress(*GOES_AWAY):
            client = await AsyncClient.open(proxy.port)
            try:
                async with asyncio.timeout(2):
                    await attack(client, number)
            finally:
                client.close()
        await asyncio.sleep(0.01)


@pytest.mark.threat("flood-while-ending")
async def test_sigterm_under_all_attacks_at_once_ends_in_time_with_0_and_no_internal_error(tmp_path: Path) -> None:
    import passlib.hash

    users = tmp_path / "users"
    users.write_text(f"alice:{passlib.hash.bcrypt.using(rounds=8).hash('sesame')}\n")
    users.chmod(0o600)
    keys = {
        "authenticationEnabled": "true", "authenticationProviders": "basic", "basicAuthConf": str(users),
        "shutdownDrainMillis": 1000, "maxTopicListInFlightDirectMemSizeMB": 4, "maxTopicListInFlightHeapMemSizeMB": 4,
    }  # fmt: skip
    async with (
        EmbeddedBroker(GeneratedTopics(1, 5000, 100)) as broker,
        child_proxy(tmp_path, broker, **keys) as proxy,
        asyncio.TaskGroup() as group,
    ):
        attackers = [group.create_task(attacking(proxy, attack, n)) for attack in ATTACKS for n in range(EACH)]
        try:
            await eventually(lambda: proxy.said("client failed to authenticate"), "guesses refused")
            # Beside all of them one client still gets in.
            honest = await proxy.client()
            await honest.send(with_password("sesame"))
            async with in_time():
                answer = await honest.command()
            if answer.type == pb.BaseCommand.ERROR:
                # Its pair of address and user is that of the guessers, so it may have to come again.
                assert answer.error.error == ServerError.ServiceNotReady
            os.kill(proxy.child.pid, signal.SIGTERM)
            assert await proxy.exit_code() == 0
        finally:
            for attacker in attackers:
                attacker.cancel()
        assert proxy.said("stopped") == 1
        assert proxy.said("unexpected error") == 0
        assert "Traceback" not in proxy.log.read_text()
