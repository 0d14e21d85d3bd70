"""Clients with TLS that keep OpenSSL busy, on real sockets: others are served, and who sends no data is shown out."""

import ssl
from pathlib import Path

import pytest

from protocol.commands import PONG_FRAME
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.auth.key_updates import HandSealer, logging_context
from tests.support.auth.tls import PemFiles, tls_client
from tests.support.clients.async_client import AsyncClient, connect_frame
from tests.support.proxies.proxy_under_test import TOPIC, Stage, staged

ATTACKERS = 4


@pytest.fixture
def logging(tmp_path: Path) -> ssl.SSLContext:
    """Give a context that has opened its log before a stage counts the open files."""
    return logging_context(tmp_path)


async def attacker(
    stage: Stage, directory: Path, logging: ssl.SSLContext, target: str | None = None
) -> tuple[AsyncClient, HandSealer]:
    """Give a client in lookup mode, or a relayed one, and what seals its records from now on."""
    client = await tls_client(stage, logging)
    hand = HandSealer.of(directory, client.sealer.tls)
    await AsyncClient.send(client, hand.data(connect_frame(target)))
    assert (await client.command()).type == pb.BaseCommand.CONNECTED
    return client, hand


@pytest.mark.threat("tls-key-updates")
@pytest.mark.parametrize("relayed", [False, True])
async def test_key_updates_with_a_pong_now_and_then_end_their_connections(
    files: PemFiles, logging: ssl.SSLContext, tmp_path: Path, relayed: bool
) -> None:
    async with staged(**files.server_keys) as stage:
        stage.hear_everything()
        neighbour = await stage.connected()
        target = f"127.0.0.1:{stage.broker.port}" if relayed else None
        crowd = [await attacker(stage, tmp_path, logging, target) for _ in range(ATTACKERS)]
        for client, hand in crowd:
            data = b"".join(hand.updates(150, requested=False) + hand.data(PONG_FRAME) for _ in range(20))
            await AsyncClient.send(client, data)
            await neighbour.ping()
        await stage.until(lambda: stage.caused("tls_error") == ATTACKERS, "connections that are ended")
        assert len(stage.proxy.sessions) == 1


@pytest.mark.threat("tls-key-updates")
async def test_a_neighbour_is_served_beside_clients_that_pay_for_their_key_updates(
    files: PemFiles, logging: ssl.SSLContext, tmp_path: Path
) -> None:
    async with staged(**files.server_keys) as stage:
        stage.hear_everything()
        neighbour = await stage.connected()
        crowd = [await attacker(stage, tmp_path, logging) for _ in range(ATTACKERS)]
        sessions = [one for one in stage.sessions if one.is_tls]
        flood = 600
        for client, hand in crowd:
            data = b"".join(hand.updates(8, requested=False) + hand.data(PONG_FRAME) for _ in range(flood))
            await AsyncClient.send(client, data)
        await neighbour.ping()
        # What is unread waits in the kernel, or for a turn: the neighbour did not wait for all of it.
        assert any(session.received_bytes < flood * len(PONG_FRAME) for session in sessions)
        assert (await neighbour.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect
        await stage.until(
            lambda: all(session.received_bytes >= flood * len(PONG_FRAME) for session in sessions), "all of the flood"
        )
        assert stage.caused("tls_error") == 0
