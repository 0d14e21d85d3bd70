"""Clients that try to make the proxy hold, or do, more than their share: each is refused and harms nobody."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.frames import varint
from protocol.pb import PulsarApi_pb2 as pb
from protocol.proxy_header import HostPort, ProxyHeader, encode
from proxy.clients.requests import LISTS_AT_ONCE
from tests.support.auth.tls import PemFiles
from tests.support.clients.async_client import topics_frame
from tests.support.proxies.counted import counted, counted_by
from tests.support.proxies.proxy_under_test import TOPIC, namespace, staged

LISTS = CommandType.GET_TOPICS_OF_NAMESPACE


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the size of every command that is handed to protobuf."""
    sizes: list[int] = []
    parse = commands.parse

    def noted(command: bytes | bytearray | memoryview) -> pb.BaseCommand:
        sizes.append(len(command))
        return parse(command)

    monkeypatch.setattr(commands, "parse", noted)
    return sizes


def of_empty_properties(kind: CommandType, count: int) -> bytes:
    """Build a request with a required field or two, and `count` properties of two bytes each."""
    properties = b"\x42\x00" * count
    if kind == CommandType.GET_OR_CREATE_SCHEMA:
        properties = b"\x0a\x01s\x1a\x00\x20\x00" + b"\x2a\x00" * count
        content = b"\x08\x07\x12" + varint(len(TOPIC)) + TOPIC.encode() + b"\x1a" + varint(len(properties)) + properties
    elif kind == CommandType.LOOKUP:
        content = b"\x0a" + varint(len(TOPIC)) + TOPIC.encode() + b"\x10\x07" + properties
    else:
        content = b"\x08\x07\x12\x0ademo/ns-00" + b"\x32\x00" * count
    command = b"\x08" + varint(kind) + varint(kind << 3 | 2) + varint(len(content)) + content
    return (len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command


@pytest.mark.threat("request-grows-decoded")
async def test_a_mebibyte_of_empty_properties_is_refused_by_its_first_bytes_and_never_decoded(
    decoded: list[int],
) -> None:
    async with staged() as stage:
        client = await stage.connected()
        decoded.clear()
        request = of_empty_properties(CommandType.GET_OR_CREATE_SCHEMA, 520_000)
        sent = client.send_now(request[: 8 * 1024])
        # The answer comes before the rest, which is passed over.
        assert (await client.error(7)).error == ServerError.NotAllowedError
        await client.send(request[sent:])
        await client.ping()
        assert stage.direct.statistics().peak_held <= 2 * 8 * 1024
        assert max(decoded) < 100
        assert counted_by(stage.proxy.counters, "refused_requests") == {"properties": 1}
        assert not stage.broker.record.commands(CommandType.GET_OR_CREATE_SCHEMA)


@pytest.mark.parametrize("kind", [CommandType.LOOKUP, LISTS, CommandType.GET_OR_CREATE_SCHEMA], ids=str)
async def test_a_request_that_would_grow_when_it_is_decoded_is_refused_before_it_is_decoded(
    kind: CommandType, decoded: list[int]
) -> None:
    async with staged() as stage:
        client = await stage.connected()
        decoded.clear()
        request = of_empty_properties(kind, 1900)
        assert len(request) < 4096
        await client.send(request)
        answer = await client.answer()
        code = answer.lookupTopicResponse.error if kind == CommandType.LOOKUP else answer.error.error
        assert (commands.request_id_of(answer), code) == (7, ServerError.NotAllowedError)
        assert not [size for size in decoded if size > 1000]
        assert counted_by(stage.proxy.counters, "refused_requests") == {"properties": 1}
        await client.ping()


async def test_a_connect_that_would_grow_when_it_is_decoded_ends_its_connection(decoded: list[int]) -> None:
    async with staged() as stage:
        client = await stage.client()
        command = b"\x08\x02\x12\x03\x0a\x01c" + of_empty_properties(CommandType.LOOKUP, 20_000)[10:]
        await client.send((len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command)
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("malformed_frame") == 1, "a connection that ended")
        assert not [size for size in decoded if size > 1000]


@pytest.mark.parametrize("tls", [False, True])
async def test_a_header_that_came_late_leaves_the_rest_of_the_handshakes_clock_only(tls: bool, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"haProxyProtocolEnabled": "true", "brokerHaProxyProtocolVersion": "none"}
    if tls:
        keys |= PemFiles.write(tmp_path / "tls").server_keys
    async with staged(**keys) as stage:
        proxy, begun = stage.proxy, stage.proxy.loop.time()
        client = await stage.client(port=proxy.tls_port if tls else None)
        await stage.until(lambda: counted(proxy.counters, "client_awaited_headers") == 1, "a client without a header")
        accepted = proxy.loop.time()
        await asyncio.sleep(0.1)
        await client.send(encode(ProxyHeader(HostPort("203.0.113.7", 40_000), HostPort("198.51.100.1", 6650)), 1))
        await stage.until(
            lambda: not counted(proxy.counters, "client_awaited_headers"), "a client with its header read"
        )
        seconds = proxy.sessions.handshake_seconds
        await proxy.sessions.tick(begun + seconds - 0.1)
        assert len(proxy.sessions) == 1
        await proxy.sessions.tick(accepted + seconds)
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("handshake_timeout") == 1, "the end of the clock")


@pytest.mark.threat("lists-take-lookup-places")
async def test_lists_that_wait_take_no_place_from_the_lookups_of_others() -> None:
    async with staged(maxConcurrentLookupRequests=5000) as stage:
        gate = stage.broker.script.hold(LISTS)
        greedy = [await stage.connected() for _ in range(5)]
        for client in greedy:
            await client.send(b"".join(topics_frame(number, namespace(number % 20)) for number in range(1, 1001)))
        held_back = [stage.session_of(client) for client in greedy]
        await stage.until(lambda: all("outstanding" in one.holds for one in held_back), "all wait for their lists")
        places = stage.proxy.services.requests.lookups.list_places
        await stage.until(lambda: places.waiting > 600 and stage.lookups.held == 5 * LISTS_AT_ONCE, "lists that wait")
        other = await stage.connected()
        for _ in range(20):
            assert (await other.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect
        assert not counted_by(stage.proxy.counters, "refused_requests")
        gate.set()
