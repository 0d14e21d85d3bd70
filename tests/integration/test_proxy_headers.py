"""Behind a balancer: who a client is stands in the PROXY header, for the limits, for the log and for brokers."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from protocol.proxy_header import HostPort, ProxyHeader, encode
from proxy.core.public_causes import CONNECTIONS_TEXT
from proxy.net import proxy_headers
from tests.support.auth.tls import PemFiles, TlsClient, client_context, server_context
from tests.support.brokers.raw_broker import CONNECTED, empty_list, handshake, raw_broker, request
from tests.support.clients.async_client import LOOPBACK, AsyncClient, command_of, connect_frame
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import TOPIC, Stage, staged

CLIENT = HostPort("203.0.113.7", 40_000)
SERVER = HostPort("198.51.100.1", 6650)
HEADER = ProxyHeader(CLIENT, SERVER)
SIX = ProxyHeader(HostPort("2001:db8::7", 40_000), HostPort("2001:db8::1", 6650))
# The embedded broker does not speak the protocol.
ON: dict[str, Any] = {"haProxyProtocolEnabled": "true", "brokerHaProxyProtocolVersion": "none"}
BOTH: dict[str, Any] = {"haProxyProtocolEnabled": "true"}


async def through_a_balancer(stage: Stage, header: bytes, rest: bytes = b"") -> AsyncClient:
    """Connect as a balancer does, with what the client sends right behind the header."""
    client = await stage.client()
    await client.send(header + (rest or connect_frame()))
    return client


async def connected(client: AsyncClient) -> None:
    assert (await client.command()).type == pb.BaseCommand.CONNECTED


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("header", [HEADER, SIX], ids=["IPv4", "IPv6"])
async def test_a_client_is_known_by_the_address_in_its_header(version: int, header: ProxyHeader) -> None:
    async with staged(**ON) as stage:
        await connected(await through_a_balancer(stage, encode(header, version)))
        (session,) = stage.sessions
        assert header.source is not None
        assert (session.client_address, session.name) == (header.source.host, str(header.source))


@pytest.mark.parametrize("header", [b"", encode(ProxyHeader(), 1), encode(ProxyHeader(), 2)])
async def test_a_connection_without_an_address_in_front_is_known_by_its_own(header: bytes) -> None:
    async with staged(**ON) as stage:
        client = await through_a_balancer(stage, header)
        await connected(client)
        (session,) = stage.sessions
        assert session.name == "{}:{}".format(*client.sock.getsockname())


@pytest.mark.parametrize("version", [1, 2])
async def test_a_header_that_comes_byte_by_byte_is_read_and_nothing_behind_it(version: int) -> None:
    async with staged(**ON) as stage:
        client = await stage.client()
        for byte in encode(HEADER, version) + connect_frame():
            await client.send(bytes((byte,)))
            await asyncio.sleep(0)
        await connected(client)
        assert (await client.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect


async def test_a_header_is_a_broken_frame_where_nobody_expects_it() -> None:
    async with staged() as stage:
        client = await through_a_balancer(stage, encode(HEADER, 1))
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("frame_too_large"), "a frame that long")


@pytest.mark.parametrize(
    "garbage",
    [b"PROPFIND / HTTP/1.1\r\n\r\n", b"PROXY TCP4 x y 1 2\r\n", b"\r\nnothing", b"PROXY UNKNOWN " + bytes(200)],
)
async def test_a_header_that_breaks_the_rules_ends_its_connection(garbage: bytes) -> None:
    async with staged(**ON) as stage:
        client = await through_a_balancer(stage, garbage)
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("malformed_proxy_header") == 1, "an end for a malformed header")
        assert counted(stage.proxy.counters, "new_connections") == 0


@pytest.mark.parametrize("begun", [b"", b"P", b"PROXY TCP4", encode(HEADER, 2)[:20]])
async def test_a_header_that_does_not_end_is_given_up_with_the_handshake(begun: bytes) -> None:
    async with staged(handshakeTimeoutMillis=150, **ON) as stage:
        client = await stage.client()
        await client.send(begun)
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("handshake_timeout") == 1, "an end for lateness")


@pytest.mark.threat("claimed-proxy-header")
async def test_a_header_of_anybody_else_is_a_broken_frame_and_changes_no_address() -> None:
    async with staged(**ON, trustedLoadBalancerIPAddresses="192.0.2.0/24") as stage:
        liar = await through_a_balancer(stage, encode(HEADER, 1))
        await liar.rest()
        await stage.until(lambda: not len(stage.proxy.sessions), "no session")
        assert stage.caused("malformed_frame") + stage.caused("frame_too_large") == 1
        direct = await stage.client()
        await direct.connect()
        (session,) = stage.sessions
        assert session.client_address == LOOPBACK


async def test_the_limit_of_one_address_counts_clients_and_not_the_balancer() -> None:
    async with staged(maxConcurrentInboundConnectionsPerIp=2, **ON) as stage:
        for number in range(4):
            header = ProxyHeader(HostPort(f"203.0.113.{number // 2}", 40_000 + number), SERVER)
            await connected(await through_a_balancer(stage, encode(header, 2)))
        late = await through_a_balancer(stage, encode(ProxyHeader(HostPort("203.0.113.0", 1), SERVER), 1))
        error = (await late.last_command()).error
        assert error.error == ServerError.NotAllowedError
        assert error.message == CONNECTIONS_TEXT
        assert counted(stage.proxy.counters, "rejected_connections") == 1


@pytest.fixture
def nobody_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    # However slow the machine is, nobody ends for one of the same address.
    monkeypatch.setattr(proxy_headers, "SILENT_SECONDS", 600.0)


@pytest.mark.usefixtures("nobody_waits_for_long")
async def test_those_on_their_way_in_count_on_all_ports_together(files: PemFiles) -> None:
    async with staged(maxConcurrentInboundConnections=2, **files.server_keys, **ON) as stage:
        await stage.client()
        await stage.client(port=stage.proxy.tls_port)
        await stage.until(lambda: counted(stage.proxy.counters, "client_awaited_headers") == 2, "two arrivals")
        late = await stage.client()
        assert (await late.last_command()).error.message == CONNECTIONS_TEXT


@pytest.mark.threat("silent-before-proxy-header")
@pytest.mark.usefixtures("nobody_waits_for_long")
@pytest.mark.parametrize("tls", [False, True])
async def test_silent_connections_of_one_address_keep_nobody_of_another_from_sending_its_header(
    files: PemFiles, tls: bool
) -> None:
    async with staged(maxConcurrentInboundConnections=8, **files.server_keys, **ON) as stage:
        port = stage.proxy.tls_port if tls else stage.proxy.port
        silent = [await AsyncClient.open(port) for _ in range(8)]
        stage.clients += silent
        await stage.until(
            lambda: counted(stage.proxy.counters, "client_awaited_headers") == 8, "a crowd without headers"
        )
        for _ in range(2):
            client = await AsyncClient.open(stage.proxy.port, source="127.0.0.2")
            stage.clients.append(client)
            await client.send(encode(HEADER, 2) + connect_frame())
            await connected(client)
        assert await silent[0].rest() == b""
        assert stage.caused("connection_limit") == 2
        # One more of the crowd is turned away, and ends nobody.
        assert (await (await stage.client()).last_command()).error.message == CONNECTIONS_TEXT
        assert len(stage.proxy.sessions) == 2


# --- with TLS behind it ---------------------------------------------------------------------------


@pytest.mark.parametrize("header", [b"", encode(HEADER, 1), encode(HEADER, 2)], ids=["none", "v1", "v2"])
async def test_a_header_stands_in_front_of_tls(files: PemFiles, header: bytes) -> None:
    async with staged(**files.server_keys, **ON) as stage:
        plain = await stage.client(port=stage.proxy.tls_port)
        await plain.send(header)
        client = await TlsClient(plain.sock, client_context()).shake()
        await client.connect()
        (session,) = stage.sessions
        expected = str(CLIENT) if header else "{}:{}".format(*plain.sock.getsockname())
        assert session.name == expected


async def test_brokers_are_told_in_front_of_tls(files: PemFiles) -> None:
    told: list[bytes] = []

    async def serve(peer: AsyncClient) -> None:
        told.append(await AsyncClient(peer.sock).receive(len(encode(HEADER, 1))))
        await peer.shake()
        await handshake(peer)
        await peer.rest()

    context = server_context()
    async with (
        raw_broker(serve, lambda sock: TlsClient(sock, context, server_side=True)) as broker,
        staged(broker_port=broker.port, **files.broker_keys, **BOTH) as stage,
    ):
        client = await through_a_balancer(stage, encode(HEADER, 2), connect_frame(f"{LOOPBACK}:{broker.port}"))
        await connected(client)
    assert told == [encode(HEADER, 1)]


# --- towards brokers ------------------------------------------------------------------------------


@dataclass
class Begun:
    """What the two kinds of connections to a broker begin with, and where the relayed client was."""

    relayed: bytes
    pooled: bytes
    client: HostPort
    proxy: HostPort


async def begun(header: ProxyHeader | None, **keys: Any) -> Begun:
    """Have one client relayed and another ask for a list."""
    found: dict[bool, bytes] = {}

    async def serve(peer: AsyncClient) -> None:
        first = await until_connect(peer)
        relayed = await connects_for_a_client(peer, first)
        found[relayed] = first[:-4]
        if not relayed:
            await peer.send(empty_list(await request(peer)))
        await peer.rest()

    async with raw_broker(serve) as broker, staged(broker_port=broker.port, **keys) as stage:
        client = await stage.client()
        here, there = HostPort(*client.sock.getsockname()), HostPort(*client.sock.getpeername())
        await client.send((encode(header, 2) if header else b"") + connect_frame(f"{LOOPBACK}:{broker.port}"))
        await connected(client)
        await (await stage.connected()).topics("demo/ns-00")
        return Begun(found[True], found[False], here, there)


async def until_connect(peer: AsyncClient) -> bytes:
    """Read to the size of the CONNECT frame, with what stands before it."""
    data = await peer.receive(1)
    if data == b"P":
        while not data.endswith(b"\r\n"):
            data += await peer.receive(1)
    elif data == b"\r":
        data += await peer.receive(15)
        data += await peer.receive(int.from_bytes(data[14:16], "big"))
    else:
        return data + await peer.receive(3)
    return data + await peer.receive(4)


async def connects_for_a_client(peer: AsyncClient, first: bytes) -> bool:
    """Answer CONNECT; a relayed one says that a proxy is between."""
    connect = command_of(first[-4:] + await peer.receive(int.from_bytes(first[-4:], "big"))).connect
    await peer.send(CONNECTED)
    return connect.HasField("proxy_version")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("header", [HEADER, SIX], ids=["IPv4", "IPv6"])
async def test_brokers_are_told_what_the_header_said(version: int, header: ProxyHeader) -> None:
    told = await begun(header, brokerHaProxyProtocolVersion=version, **BOTH)
    assert told.relayed == encode(header, version)
    assert told.pooled == encode(ProxyHeader(), version)


async def test_brokers_are_told_where_a_client_without_a_header_is() -> None:
    told = await begun(None, **BOTH)
    assert told.relayed == encode(ProxyHeader(told.client, told.proxy), 1)
    assert told.pooled == b"PROXY UNKNOWN\r\n"


@pytest.mark.parametrize("keys", [{}, ON], ids=["off", "none"])
async def test_brokers_that_expect_no_header_get_none(keys: dict[str, Any]) -> None:
    told = await begun(None, **keys)
    assert (told.relayed, told.pooled) == (b"", b"")
