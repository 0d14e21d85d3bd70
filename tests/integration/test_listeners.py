"""Where a proxy listens: on several addresses, at a Unix socket, and on a port for monitors and probes alone."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.pb import PulsarApi_pb2 as pb
from protocol.proxy_header import HostPort, ProxyHeader, encode
from proxy.cli.health import obstacle_of
from tests.support.clients.async_client import LOOPBACK, AsyncClient, connect_frame, eventually
from tests.support.patience import in_time, patient
from tests.support.proxies.proxy_under_test import TOPIC, TOPICS, Stage, config_for, namespace, staged
from tests.support.sockets.ports import free_port, free_ports
from tests.support.tools import ipv6_loopback
from tests.support.web.web_pages import get
from tests.support.web.web_stage import ADMIN, web_staged

OTHER = "127.0.0.2"
MYSELF = f"unix:{os.getuid()}"


async def client_at(stage: Stage, family: socket.AddressFamily, address: Any) -> AsyncClient:
    """Open a connection to an address that `AsyncClient.open` does not know."""
    sock = socket.socket(family)
    sock.setblocking(False)
    try:
        async with in_time():
            await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    stage.clients.append(AsyncClient(sock))
    return stage.clients[-1]


# --- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["[::1]", "[::]", f"{LOOPBACK},[::1]"])
async def test_an_address_in_brackets_is_served(address: str) -> None:
    ipv6_loopback()
    async with staged(bindAddress=address) as stage:
        client = await client_at(stage, socket.AF_INET6, ("::1", stage.proxy.port))
        await client.connect()
        assert len((await client.topics(namespace(0))).topics) == TOPICS
        assert (await get(stage.proxy.web_port, "/readyz", at="::1")).text == "OK\n"


async def test_where_ipv6_takes_both_families_brokers_are_told_a_client_s_ipv4_address_as_such() -> None:
    ipv6_loopback()
    async with web_staged(bindAddress="[::]") as at:
        await get(at.stage.proxy.web_port, ADMIN)
        assert [asked.header("X-Forwarded-For") for asked in at.broker.asked] == [LOOPBACK]


async def test_clients_and_web_pages_are_served_on_each_address() -> None:
    port, web_port = free_ports(2)
    async with staged(bindAddress=f"{LOOPBACK},{OTHER}", servicePort=port, webServicePort=web_port) as stage:
        for host in (LOOPBACK, OTHER):
            client = await client_at(stage, socket.AF_INET, (host, stage.proxy.port))
            await client.connect()
            assert len((await client.topics(namespace(0))).topics) == TOPICS
            assert (await get(stage.proxy.web_port, "/readyz", at=host)).text == "OK\n"
        with pytest.raises(ConnectionRefusedError):
            await client_at(stage, socket.AF_INET, ("127.0.0.3", stage.proxy.port))


# --- a Unix socket --------------------------------------------------------------------------------


@asynccontextmanager
async def at_a_path(directory: Path, **keys: Any) -> AsyncIterator[tuple[Stage, str]]:
    path = str(directory / "s")
    async with staged(serviceSocketPath=path, **keys) as stage:
        yield stage, path
    assert os.listdir(directory) == []


async def test_a_client_of_a_unix_socket_has_lists_and_lookups(tmp_path: Path) -> None:
    async with at_a_path(tmp_path) as (stage, path):
        client = await client_at(stage, socket.AF_UNIX, path)
        await client.connect()
        assert len((await client.topics(namespace(0))).topics) == TOPICS
        assert (await client.lookup(TOPIC)).proxy_through_service_url


@pytest.mark.parametrize("pool", ["-1", "16"])
async def test_a_client_of_a_unix_socket_is_relayed(tmp_path: Path, pool: str) -> None:
    async with at_a_path(tmp_path, relayMemoryPoolMB=pool) as (stage, path):
        client = await client_at(stage, socket.AF_UNIX, path)
        await client.connect(target=f"{LOOPBACK}:{stage.broker.port}")
        # A list of 700 KB is more than the buffers of a Unix socket take at once.
        assert len((await client.topics(namespace(0))).topics) == TOPICS
        await client.ping()


async def test_a_client_of_a_unix_socket_has_the_number_of_its_user_for_an_address(tmp_path: Path) -> None:
    async with at_a_path(tmp_path, maxConcurrentInboundConnectionsPerIp=2) as (stage, path):
        first = await client_at(stage, socket.AF_UNIX, path)
        await first.connect()
        second = await client_at(stage, socket.AF_UNIX, path)
        await second.connect()
        assert [(each.client_address, each.name) for each in stage.sessions] == [(MYSELF, MYSELF)] * 2
        # All clients of a user count as those of one address.
        third = await client_at(stage, socket.AF_UNIX, path)
        assert (await third.last_command()).error.error == pb.NotAllowedError
        await (await stage.client()).connect()


@pytest.mark.threat("unix-socket-claim")
@pytest.mark.parametrize(
    ("trusted", "believed"), [("unix", True), ("*", True), ("10.0.0.0/8,unix", True), ("10.0.0.0/8", False)]
)
async def test_a_balancer_at_the_unix_socket_is_believed_if_it_is_listed(
    tmp_path: Path, trusted: str, believed: bool
) -> None:
    keys = {"haProxyProtocolEnabled": "true", "trustedLoadBalancerIPAddresses": trusted}
    async with at_a_path(tmp_path, **keys) as (stage, path):
        client = await client_at(stage, socket.AF_UNIX, path)
        header = ProxyHeader(HostPort("192.0.2.7", 1234), HostPort("192.0.2.8", 6650))
        await client.send(encode(header, 1) + connect_frame())
        if not believed:
            # The header is no frame of Pulsar's.
            assert await client.rest() == b""
            return
        assert (await client.command()).type == pb.BaseCommand.CONNECTED
        assert [each.client_address for each in stage.sessions] == ["192.0.2.7"]


async def test_a_proxy_of_a_unix_socket_alone_has_no_port(tmp_path: Path) -> None:
    async with at_a_path(tmp_path, servicePort="", webServicePort="") as (stage, path):
        assert stage.proxy.client_port == 0
        client = await client_at(stage, socket.AF_UNIX, path)
        await client.connect()


# --- metrics --------------------------------------------------------------------------------------


def monitors(stage: Stage) -> int:
    web = stage.proxy.web
    assert web is not None
    assert web.metrics_port
    return web.metrics_port


@pytest.mark.threat("beyond-metrics-port")
async def test_the_port_for_monitors_has_their_pages_and_nothing_else() -> None:
    # The kernel gives each address ports of its own: a port 0 here might be another test's at the other address.
    async with web_staged(metricsPort=free_port(), metricsBindAddress=OTHER) as at:
        port = monitors(at.stage)
        for path in ("/metrics", "/healthz", "/readyz", "/status.html"):
            assert (await get(port, path, at=OTHER)).status == 200, path
        assert "pulsar_proxy_" in (await get(port, "/metrics", at=OTHER)).text
        for path in ("/", "/ui", "/ui/state", "/config", "/proxy-stats/connections", "/admin/v2/clusters", "/v1"):
            assert (await get(port, path, at=OTHER)).status == 404, path
        assert at.broker.asked == []
        with pytest.raises(ConnectionRefusedError):
            await get(port, "/metrics")


async def test_the_port_for_monitors_needs_no_web_port() -> None:
    async with staged(webServicePort="", metricsPort="0") as stage:
        port = monitors(stage)
        assert stage.proxy.web_port == 0
        assert (await get(port, "/readyz")).status == 200
        asked = config_for("pulsar://b:1", webServicePort="", metricsPort=port)
        assert await asyncio.to_thread(obstacle_of, asked, {}, patient(20)) is None


async def test_clients_that_hold_all_places_of_the_web_port_keep_no_probe_out() -> None:
    async with staged(metricsPort="0", maxHttpServerConnections="2") as stage:
        port = monitors(stage)
        held = [await stage.client(port=stage.proxy.web_port) for _ in range(2)]
        for client in held:
            await client.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
        for _ in range(3):
            assert (await get(port, "/healthz")).status == 200
        # And the other way round: whoever connects there takes no place of the web port.
        for _ in range(40):
            await stage.client(port=port)
        await eventually(lambda: stage.caused("connection_limit"), "a place for the last of them")
        assert (await get(port, "/readyz")).status == 200


@pytest.mark.parametrize(("asks", "status"), [("true", 401), ("false", 200)])
async def test_the_port_for_monitors_asks_for_credentials_as_the_web_port_does(asks: str, status: int) -> None:
    keys: dict[str, Any] = {
        "authenticationEnabled": "true",
        "authenticationProviders": "token",
        "tokenSecretKey": "data:;base64,c2VjcmV0IG9mIDMyIGJ5dGVzIGZvciB0aGlzIHRlc3Q=",
        "authenticateMetricsEndpoint": asks,
    }
    async with staged(metricsPort="0", **keys) as stage:
        assert (await get(monitors(stage), "/metrics")).status == status
        assert (await get(monitors(stage), "/readyz")).status == 200
