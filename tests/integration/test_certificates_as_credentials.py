"""Certificates as credentials: a client's is its role, and the proxy shows brokers the one of its plugin."""

from pathlib import Path
from typing import Any

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.identity import Principal
from tests.support.auth.credentials import refused
from tests.support.auth.tls import PemFiles, TlsClient, authority, client_context, tls_client
from tests.support.clients.async_client import connect_frame
from tests.support.proxies.proxy_under_test import Stage, staged

KEYS: dict[str, Any] = {"authenticationEnabled": "true", "authenticationProviders": "tls"}


def server_keys(directory: Path) -> dict[str, Any]:
    files = PemFiles.write(directory)
    return {**KEYS, **files.server_keys, "tlsTrustCertsFilePath": files.trust}


async def shown(stage: Stage, common_name: str | None) -> TlsClient:
    own = None if common_name is None else authority("first").issue_cert("any.example", common_name=common_name)
    client = await tls_client(stage, client_context(own=own))
    await client.send(connect_frame(auth_method_name="tls"))
    return client


async def test_the_role_of_a_client_is_in_its_certificate(tmp_path: Path) -> None:
    async with staged(**server_keys(tmp_path)) as stage:
        client = await shown(stage, "alice")
        assert (await client.command()).type == pb.BaseCommand.CONNECTED
        assert [session.principal for session in stage.sessions] == [Principal("alice")]


async def test_a_client_without_a_certificate_has_no_role(tmp_path: Path) -> None:
    async with staged(**server_keys(tmp_path)) as stage:
        client = await shown(stage, None)
        assert (await refused(client)).error == ServerError.AuthenticationError


async def test_a_certificate_counts_on_the_tls_port_only(tmp_path: Path) -> None:
    async with staged(**server_keys(tmp_path)) as stage:
        client = await stage.client()
        await client.send(connect_frame(auth_method_name="tls", auth_data=b"CN=alice"))
        assert (await refused(client)).error == ServerError.AuthenticationError
