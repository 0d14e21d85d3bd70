"""Brokers that no client has asked for anything: probed at the start, shown, tried by `check-config --connect`."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ServerError
from proxy.cli.main import main
from tests.support.auth.credentials import turned_away
from tests.support.auth.tls import PemFiles, server_context, tls_broker
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.script import Failure
from tests.support.brokers.raw_broker import raw_broker, silence
from tests.support.clients.async_client import LOOPBACK, AsyncClient, connect_frame
from tests.support.patience import patient_millis
from tests.support.proxies.counted import counted_by
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.sockets.ports import free_port
from tests.support.web.web_pages import get, scrape

TOKENS = ("authenticationEnabled=true", "authenticationProviders=token", f"tokenSecretKey=data:;base64,{'A' * 64}")
PROBED = {"brokerIdleProbeIntervalMillis": 30_000}


async def readiness(stage: Stage, query: str = "") -> tuple[int, str]:
    page = await get(stage.proxy.web_port, f"/readyz{query}")
    return page.status, page.text


async def test_a_dead_broker_is_down_without_a_client_and_the_proxy_stays_ready() -> None:
    async with staged(None, free_port(), **PROBED) as stage:
        await stage.until(lambda: stage.proxy.broker_side.brokers.states()["down"] == 1, "a broker that is down")
        assert await readiness(stage) == (200, "OK\n")
        assert await readiness(stage, "?verbose") == (
            200, "ready: yes\nbrokers: 0 unknown, 0 refusing, 0 up, 0 trial, 1 down\n",
        )  # fmt: skip
        metrics = await scrape(stage.proxy.web_port)
        assert [metrics("brokers", state=state) for state in ("down", "up")] == [1, 0]
        assert "connection refused" in str(stage.proxy.broker_side.brokers.shown()[0]["error"])


async def test_readiness_waits_for_unknown_brokers_as_long_as_the_key_says() -> None:
    # Nothing is probed, so the broker stays unknown.
    async with staged(None, readinessBrokerWaitMillis=3_600_000) as stage:
        status, reason = await readiness(stage)
        assert (status, "readinessBrokerWaitMillis" in reason) == (503, True)
        client = await stage.connected()
        await client.topics("demo/ns-00")
        assert await readiness(stage) == (200, "OK\n")
    async with staged(None) as stage:
        assert await readiness(stage) == (200, "OK\n")


@asynccontextmanager
async def no_broker(answer: bytes) -> AsyncIterator[int]:
    """Listen as a server that is no broker: each first bytes get `answer`, or nothing at all; yield the port."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        with suppress(OSError):
            await reader.read()
        writer.close()

    async with await asyncio.start_server(served, LOOPBACK, 0) as server:
        yield server.sockets[0].getsockname()[1]


async def never_up(stage: Stage) -> str:
    """Wait until a broker was probed, and return why it cannot be used; fail if it is up."""
    brokers = stage.proxy.broker_side.brokers
    await stage.until(lambda: any(counted_by(stage.proxy.counters, "broker_probes").values()), "a probe")
    assert (brokers.states()["up"], brokers.states()["unknown"]) == (0, 0)
    return str(brokers.shown()[0]["error"])


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "did not answer CONNECT"),
        (b"", "did not answer CONNECT within"),
    ],
)
async def test_a_listener_that_is_no_broker_is_never_up(answer: bytes, says: str) -> None:
    limit = {"brokerProxyConnectTimeoutMs": patient_millis(500)}
    async with no_broker(answer) as port, staged(None, port, **limit, **PROBED) as stage:
        assert says in await never_up(stage)


async def test_a_broker_that_is_not_ready_is_never_up() -> None:
    async with EmbeddedBroker() as broker:
        broker.script.refuse_connect = Failure(ServerError.ServiceNotReady, "still loading")
        async with staged(None, broker.port, **PROBED) as stage:
            assert "still loading" in await never_up(stage)


async def test_a_broker_that_refuses_the_proxys_credentials_says_why_until_it_is_used() -> None:
    async with EmbeddedBroker() as broker:
        broker.script.refuse_connect = Failure(ServerError.AuthenticationError, "no such token")
        async with staged(None, broker.port, **PROBED) as stage:
            # The broker lives: requests go there, and clients get its own words.
            assert "no such token" in await never_up(stage)
            assert stage.proxy.broker_side.brokers.states()["refusing"] == 1
            assert counted_by(stage.proxy.counters, "broker_probes") == {"reached": 0, "failed": 1}
            assert (await scrape(stage.proxy.web_port))("brokers_refusing") == 1
            broker.script.refuse_connect = None
            await (await stage.connected()).topics("demo/ns-00")
            assert (await scrape(stage.proxy.web_port))("brokers_refusing") == 0


async def test_own_credentials_that_are_missing_are_no_fault_of_the_broker(tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "brokerClientAuthenticationPlugin": "token",
        "brokerClientAuthenticationParameters": f"file:{tmp_path / 'token'}",
    }
    (tmp_path / "token").touch()
    async with staged(None, **keys, **PROBED) as stage:
        await never_up(stage)
        assert stage.proxy.broker_side.brokers.states()["refusing"] == 1


def checked(capsys: pytest.CaptureFixture[str], *keys: str) -> tuple[int, dict[str, list[tuple[str, bool]]]]:
    flags = [word for key in keys for word in ("--set", key)]
    code = main(["check-config", "--connect", "--json", *flags])
    found: dict[str, list[tuple[str, bool]]] = {}
    for tried in json.loads(capsys.readouterr().out)["connect"]:
        found.setdefault(tried["target"], []).append((tried["part"], tried["ok"]))
    return code, found


async def test_each_part_of_the_way_to_a_broker_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    dead = free_port()
    async with EmbeddedBroker() as broker:
        urls = f"{LOOPBACK}:{broker.port},{LOOPBACK}:{dead},nowhere.invalid:6650"
        code, found = await asyncio.to_thread(checked, capsys, f"brokerServiceURL=pulsar://{urls}")
        assert code == 1
        assert found == {
            f"pulsar://{LOOPBACK}:{broker.port}": [("name", True), ("port", True), ("credentials", True)],
            f"pulsar://{LOOPBACK}:{dead}": [("name", True), ("port", False)],
            "pulsar://nowhere.invalid:6650": [("name", False)],
        }
        broker.script.refuse_connect = Failure(ServerError.AuthenticationError, "no such token")
        url = f"brokerServiceURL=pulsar://{LOOPBACK}:{broker.port}"
        # A check speaks for no client, so the refusal is never about one.
        for keys in ((), (*TOKENS, "forwardAuthorizationCredentials=false"), TOKENS):
            code, found = await asyncio.to_thread(checked, capsys, url, *keys)
            assert (code, found[f"pulsar://{LOOPBACK}:{broker.port}"][-1]) == (1, ("credentials", False))
        broker.script.refuse_connect = None
        code, found = await asyncio.to_thread(checked, capsys, f"brokerServiceURL=pulsar://{LOOPBACK}:{broker.port}")
        assert code == 0


async def test_tls_is_tried_with_the_configured_trust(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = PemFiles.write(tmp_path)
    async with EmbeddedBroker(tls=server_context()) as broker:
        keys = ["tlsEnabledWithBroker=true", f"brokerServiceURLTLS=pulsar+ssl://localhost:{broker.port}"]
        _, found = await asyncio.to_thread(checked, capsys, *keys)
        assert ("TLS", False) in found[f"pulsar+ssl://localhost:{broker.port}"]
        keys += [f"{key}={value}" for key, value in files.broker_keys.items() if key not in ("tlsEnabledWithBroker",)]
        code, found = await asyncio.to_thread(checked, capsys, *keys)
        assert (code, found[f"pulsar+ssl://localhost:{broker.port}"][-1]) == (0, ("credentials", True))


async def test_a_broker_with_old_suites_alone_is_told_what_it_needs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files, old = PemFiles.write(tmp_path), server_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old.set_ciphers("ECDHE-ECDSA-AES128-SHA256")
    async with EmbeddedBroker(tls=old) as broker:
        assert "suites of ECDHE with AES-GCM" in await told(capsys, files, broker.port)


@pytest.mark.parametrize("alert", [40, 70], ids=["handshake failure", "protocol version"])
async def test_a_broker_that_refuses_a_handshake_by_an_alert_is_told_what_it_needs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, alert: int
) -> None:
    async def refuse(peer: AsyncClient) -> None:
        await peer.receive(1)
        await peer.send(bytes((21, 3, 3, 0, 2, 2, alert)))
        await silence(peer)

    async with raw_broker(refuse) as broker:
        assert "suites of ECDHE with AES-GCM" in await told(capsys, PemFiles.write(tmp_path), broker.port)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def test_a_broker_that_wants_a_certificate_is_told_with_its_alert(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, version: ssl.TLSVersion
) -> None:
    wanting = server_context(clients_from="first")
    wanting.minimum_version = wanting.maximum_version = version
    files = PemFiles.write(tmp_path)
    async with tls_broker(silence, wanting) as broker:
        found = await told(capsys, files, broker.port)
        assert "sent the alert" in found
        assert "brokerClientCertificateFilePath" in found
        # In TLS 1.3 the alert comes behind the handshake.
        async with staged(None, broker.port, **files.broker_keys) as stage:
            await turned_away(stage, connect_frame(f"{LOOPBACK}:{broker.port}"))
            assert "sent the alert" in stage.details[-1]


async def told(capsys: pytest.CaptureFixture[str], files: PemFiles, port: int) -> str:
    """Return what a check says that must fail at a broker with TLS."""
    keys = files.broker_keys | {"brokerServiceURLTLS": f"pulsar+ssl://localhost:{port}"}
    flags = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    assert await asyncio.to_thread(main, ["check-config", "--connect", "--json", *flags]) == 1
    return capsys.readouterr().out
