"""`pulsar-proxy health` beside a proxy that runs: by its web port, by its control socket, and with nobody there."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from proxy.cli.health import obstacle_of
from proxy.config.config import Config
from tests.support.auth.tls import PemFiles
from tests.support.brokers.raw_broker import raw_broker
from tests.support.clients.async_client import LOOPBACK, AsyncClient, eventually
from tests.support.patience import patient
from tests.support.proxies.running_proxy import Running, proxy_and_broker

NEVER = {"shutdownDrainMillis": 3_600_000}


def keys_of(proxy: Running, **keys: object) -> Config:
    """Give the configuration with the ports that it turned out to have."""
    found = {"bindAddress": LOOPBACK, "webServicePort": proxy.web_port, "servicePort": proxy.port, **keys}
    return Config.load(proxy.config, {}, {key: str(value) for key, value in found.items()})


async def obstacle(config: Config, seconds: float = 20) -> str | None:
    return await asyncio.to_thread(obstacle_of, config, {}, seconds)


async def command(config: Path, **environment: object) -> tuple[int, str, str]:
    asked = [sys.executable, "-m", "proxy", "health", "--config", str(config), "--timeout", "20"]
    env = {"PATH": ""} | {key: str(value) for key, value in environment.items()}
    done = await asyncio.to_thread(
        subprocess.run, asked, env=env, capture_output=True, text=True, timeout=patient(60), check=False
    )
    return done.returncode, done.stdout, done.stderr


async def test_the_web_port_says_it_is_ready_and_that_it_drains(tmp_path: Path) -> None:
    async with proxy_and_broker(tmp_path, **NEVER) as (proxy, broker):
        assert await command(proxy.config, webServicePort=proxy.web_port) == (0, "ready\n", "")
        client = await proxy.client()
        await client.connect(target=f"{LOOPBACK}:{broker.port}")
        await proxy.draining()
        assert await command(proxy.config, webServicePort=proxy.web_port) == (1, "not ready: draining\n", "")


async def test_without_a_port_that_is_known_the_control_socket_is_asked(tmp_path: Path) -> None:
    async with proxy_and_broker(tmp_path, **NEVER) as (proxy, broker):
        assert await command(proxy.config, webServicePort="0") == (0, "ready\n", "")
        client = await proxy.client()
        await client.connect(target=f"{LOOPBACK}:{broker.port}")
        await proxy.draining()
        assert await command(proxy.config, webServicePort="0") == (1, "not ready: draining\n", "")


async def test_a_sidecar_that_waits_for_its_application_is_ready(tmp_path: Path) -> None:
    async with proxy_and_broker(tmp_path, proxyRole="sidecar", **NEVER) as (proxy, _):
        await proxy.connected()
        os.kill(proxy.child.pid, signal.SIGTERM)
        await eventually(lambda: proxy.said("shutdown phase"), "a phase of the shutdown")
        assert await obstacle(keys_of(proxy)) is None
        assert await obstacle(keys_of(proxy, webServicePort="")) is None


async def test_a_port_with_tls_is_asked_without_looking_at_its_name(tmp_path: Path) -> None:
    files = PemFiles.write(tmp_path)
    keys = {"tlsCertificateFilePath": files.certificate, "tlsKeyFilePath": files.key, "webServicePortTls": 0}
    async with proxy_and_broker(tmp_path, **keys) as (proxy, _):
        # It is written behind the line by which the proxy was found.
        line = await proxy.child.said("web_tls_port")
        config = keys_of(proxy, webServicePort="", webServicePortTls=line["web_tls_port"])
        assert await obstacle(config) is None


async def test_nobody_there_is_said_with_address_and_reason() -> None:
    # Bound, so that nobody else gets the port, and not listening.
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        port = taken.getsockname()[1]
        config = Config.load(None, {}, {"brokerServiceURL": "pulsar://b:6650", "webServicePort": str(port)})
        assert await obstacle(config) == f"127.0.0.1:{port}: connection refused"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "got b'', expected an HTTP response: is it a web port (webServicePort)?"),
        (b"\x00\x00\x00\x05hello", "expected an HTTP response"),
        (b"HTTP/1.1 500 Oh\r\n\r\n", "status 500"),
        (b"HTTP/1.1 503 No\r\n\r\nnot listening yet\nmore", "not listening yet"),
    ],
)
async def test_an_answer_that_says_no_is_no(answer: bytes, said: str) -> None:
    async def serve(peer: AsyncClient) -> None:
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += await peer.receive(1)
        await peer.send(answer)

    async with raw_broker(serve) as peer:
        config = Config.load(None, {}, {"brokerServiceURL": "pulsar://b:6650", "webServicePort": str(peer.port)})
        found = await obstacle(config)
        assert found is not None
        assert found.endswith(said) or said in found


async def test_a_port_that_never_answers_is_given_up_even_if_bytes_drip() -> None:
    async def serve(peer: AsyncClient) -> None:
        # Who asks leaves between two bytes.
        with suppress(ConnectionError):
            while True:
                await peer.send(b"x")
                await asyncio.sleep(0.05)

    async with raw_broker(serve) as peer:
        config = Config.load(None, {}, {"brokerServiceURL": "pulsar://b:6650", "webServicePort": str(peer.port)})
        found = await obstacle(config, 0.3)
        assert found is not None
        assert "no answer in time" in found or "timed out" in found


async def test_a_file_that_was_broken_since_makes_no_proxy_unready(tmp_path: Path) -> None:
    async with proxy_and_broker(tmp_path) as (proxy, _):
        with proxy.config.open("a") as file:
            file.write("logLevel=loud\n")
        code, out, err = await command(proxy.config, webServicePort=proxy.web_port)
        assert (code, out) == (0, "ready\n")
        assert err.startswith("warning: ")
        assert "logLevel: got 'loud'" in err


async def test_a_wrong_configuration_has_its_own_code(tmp_path: Path) -> None:
    wrong = tmp_path / "proxy.conf"
    wrong.write_text("webServicePort=many\n")
    code, out, err = await command(wrong)
    assert (code, out) == (2, "")
    assert "webServicePort" in err
