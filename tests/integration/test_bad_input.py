"""What a client may send and should not: the exact answer, the named cause, and nothing kept."""

import random

import pytest

from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.async_client import PING, AsyncClient, connect_frame, schema_frame, topics_frame
from tests.support.proxies.proxy_under_test import TOPIC, Stage, namespace, staged

NO_REQUEST = commands.REQUEST_ID_NONE
HTTP = b"GET / HTTP/1.1\r\nHost: proxy\r\n\r\n" + b"x" * 64
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(200)


def sized(total: int, command: int, rest: bytes = b"") -> bytes:
    return total.to_bytes(4, "big") + command.to_bytes(4, "big") + rest


def bare(kind: int, field: bytes = b"") -> bytes:
    """Frame a command of that number, without protobuf's help: the number need not exist."""
    command = b"\x08" + (bytes([kind]) if kind < 128 else bytes([kind & 127 | 128, kind >> 7])) + field
    return sized(4 + len(command), len(command), command)


async def lives(stage: Stage, client: AsyncClient) -> None:
    """Show that the connection still serves."""
    await client.ping()
    assert (await client.lookup(TOPIC)).brokerServiceUrl == stage.broker.service_url


@pytest.mark.parametrize("connected", [False, True], ids=["first bytes", "after CONNECTED"])
@pytest.mark.parametrize(
    ("sent", "cause"),
    [
        (HTTP, "frame_too_large"),
        (TLS_HELLO, "frame_too_large"),
        (random.Random(442).randbytes(4096), "frame_too_large"),
        (sized(0x7FFF_FFFF, 100, bytes(64)), "frame_too_large"),
        (sized(0xFFFF_FFFF, 100, bytes(64)), "frame_too_large"),
        (sized(60, 2**31 - 1, bytes(64)), "malformed_frame"),
        (sized(60, 57, bytes(64)), "malformed_frame"),
        (sized(0, 0, bytes(64)), "malformed_frame"),
        (sized(3, 0, bytes(64)), "malformed_frame"),
        (bytes(64), "malformed_frame"),
    ],
    ids=[
        "HTTP",
        "TLS hello",
        "random",
        "2 GiB",
        "4 GiB",
        "command of 2 GiB",
        "command one byte beyond the frame",
        "empty frame",
        "too short for its sizes",
        "zeros",
    ],
)
async def test_bytes_that_are_no_frames_close_the_connection(sent: bytes, cause: str, connected: bool) -> None:
    if not connected:
        # The likeliest mistakes of an operator have names of their own; later both are frames like any other.
        cause = {TLS_HELLO: "tls_on_plain_port", HTTP: "http_on_client_port"}.get(sent, cause)
    async with staged() as stage:
        client = await (stage.connected() if connected else stage.client())
        await client.send(sent)
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused(cause) == 1, f"one end for {cause}")


async def test_a_request_without_a_required_field_closes_the_connection() -> None:
    async with staged() as stage:
        client = await stage.connected()
        await client.send(bare(CommandType.LOOKUP, b"\xba\x01\x02\x10\x07"))  # a request id, no topic
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("malformed_frame") == 1, "a malformed frame")


@pytest.mark.parametrize("first", [topics_frame(1, namespace(0)), PING], ids=["request", "ping"])
async def test_a_command_before_connect_closes_the_connection(first: bytes) -> None:
    async with staged() as stage:
        client = await stage.client()
        await client.send(first)
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("command_before_connect") == 1, "a command before CONNECT")


async def test_a_second_connect_closes_the_connection() -> None:
    async with staged() as stage:
        client = await stage.connected()
        await client.send(connect_frame())
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("second_connect") == 1, "a second CONNECT")


@pytest.mark.parametrize(("version", "served"), [(0, False), (9, False), (10, True), (99, True)])
async def test_a_protocol_version_below_10_is_closed_without_a_word(version: int, served: bool) -> None:
    async with staged() as stage:
        client = await stage.client()
        if served:
            assert (await client.connect(version=version)).protocol_version == min(version, 21)
            return
        await client.send(connect_frame(version=version))
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("unsupported_version") == 1, "an unsupported version")


@pytest.mark.threat("client-claims-proxy")
@pytest.mark.parametrize("version", ["evil", ""])
async def test_a_client_that_says_it_is_a_proxy_is_refused(version: str) -> None:
    async with staged() as stage:
        client = await stage.client()
        await client.send(connect_frame(proxy_version=version))
        answer = (await client.last_command()).error
        assert (answer.request_id, answer.error) == (NO_REQUEST, ServerError.NotAllowedError)
        await stage.until(lambda: stage.caused("proxy_version_refused") == 1, "a refused proxy_version")


async def test_a_send_with_a_payload_is_refused_and_its_payload_passed_over() -> None:
    async with staged() as stage:
        client = await stage.connected()
        command = pb.BaseCommand(type=pb.BaseCommand.SEND, send=pb.CommandSend(producer_id=1, sequence_id=1))
        encoded = command.SerializeToString()
        await client.send(sized(4 + len(encoded) + 500_000, len(encoded), encoded + bytes(500_000)))
        assert (await client.error(NO_REQUEST)).error == ServerError.NotAllowedError
        await lives(stage, client)


@pytest.mark.parametrize(
    "name", ["", "public", "public/", "public/a/b", "public/a b", "a/" + "b\n" * 400, "a/" + "b" * 5000]
)
async def test_a_namespace_at_which_brokers_close_is_refused_here(name: str) -> None:
    async with staged() as stage:
        client = await stage.connected()
        error = await client.refused_topics(name)
        assert error.error == ServerError.InvalidTopicName
        assert len(error.message) <= commands.MAX_ERROR_CHARS
        assert error.message.isprintable()
        await lives(stage, client)
        assert stage.broker.record.topic_questions == 0
        assert stage.outcome("failed") == 1


@pytest.mark.parametrize(
    ("request_frame", "code"),
    [
        (schema_frame(1, "no/topic"), ServerError.InvalidTopicName),
        (
            commands.frame(
                pb.BaseCommand(
                    type=pb.BaseCommand.GET_SCHEMA,
                    getSchema=pb.CommandGetSchema(request_id=1, topic=TOPIC, schema_version=b"short"),
                )
            ),
            ServerError.MetadataError,
        ),
        (
            commands.frame(
                pb.BaseCommand(
                    type=pb.BaseCommand.GET_OR_CREATE_SCHEMA,
                    getOrCreateSchema=pb.CommandGetOrCreateSchema(
                        request_id=1, topic="://", schema=pb.Schema(name="s", type=pb.Schema.String, schema_data=b"")
                    ),
                )
            ),
            ServerError.InvalidTopicName,
        ),
    ],
    ids=["schema of no topic", "schema version too short", "schema for no topic"],
)
async def test_a_schema_request_at_which_brokers_close_is_refused_here(request_frame: bytes, code: int) -> None:
    async with staged() as stage:
        client = await stage.connected()
        await client.send(request_frame)
        assert (await client.error(1)).error == code
        await lives(stage, client)
        assert not stage.broker.record.commands(CommandType.GET_SCHEMA)
        assert not stage.broker.record.commands(CommandType.GET_OR_CREATE_SCHEMA)
