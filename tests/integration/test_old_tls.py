"""Clients that offer no TLS version of today, or an attacker in between who makes them seem to."""

from pathlib import Path

import pytest

from proxy.net.tls.session import new_session
from tests.support.auth.tls import PemFiles, served_config, tls_client
from tests.support.clients.async_client import AsyncClient
from tests.support.proxies.proxy_under_test import staged

ALERT, FATAL, HANDSHAKE_FAILURE, PROTOCOL_VERSION = 21, 2, 40, 70


def hello(version: int) -> bytes:
    """Build a ClientHello of an old version: two suites, no extensions (RFC 5246, 7.4.1.2)."""
    body = version.to_bytes(2, "big") + bytes(range(32)) + b"\x00" + b"\x00\x04\x00\x2f\x00\x35" + b"\x01\x00"
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message


@pytest.mark.threat("old-tls-version")
@pytest.mark.parametrize("narrowed", ["", "TLSv1.3"])
async def test_versions_before_1_2_end_in_an_alert(tmp_path: Path, narrowed: str) -> None:
    keys = PemFiles.write(tmp_path).server_keys
    async with staged(**keys, tlsProtocols=narrowed) as stage:
        for version in (0x0301, 0x0302, *((0x0303,) if narrowed else ())):
            client = await AsyncClient.open(stage.proxy.tls_port)
            stage.clients.append(client)
            await client.send(hello(version))
            answer = await client.rest()
            assert (answer[0], len(answer)) == (ALERT, 7), hex(version)
            # A hello of TLS 1.1 does not say either which signatures it knows.
            assert answer[5] == FATAL, hex(version)
            assert answer[6] in (HANDSHAKE_FAILURE, PROTOCOL_VERSION), hex(version)
        await (await tls_client(stage)).connect()


@pytest.mark.parametrize("version", [0x0301, 0x0302])
def test_the_operator_is_told_that_a_client_is_too_old(version: int) -> None:
    session = new_session(served_config(), "")
    session.receive(hello(version), memoryview(bytearray()))
    assert session.failure is not None
    assert session.failure[0] == "version_or_cipher"
    assert session.failure[1].startswith("no version in common")
