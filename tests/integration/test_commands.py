"""Each command at the proxy itself: refused by name, or passed on, as docs/reference/commands.md says."""

import asyncio
from collections import Counter

import pytest

from protocol.command_type import CommandType, request_id_field
from protocol.commands import REQUEST_ID_NONE, frame
from protocol.errors import ServerError
from protocol.frames import answer_frame, varint
from protocol.pb import PulsarApi_pb2 as pb
from scripts.command_table import COMMANDS, REFUSED, Sender, from_client
from tests.integration.test_direct_mode import paired
from tests.support.proxies.proxy_under_test import TOPIC, staged

NOT_SERVED = [row.command for row in COMMANDS if from_client(row.command) == REFUSED]
REQUEST_ID = 77
# A field of a newer release, which is longer than what a client may send without memory for it.
LONG_FIELD = varint(1000 << 3 | 2) + varint(5000) + bytes(5000)


def filled(kind: CommandType) -> pb.BaseCommand:
    """Return a command with all that is required of it; its request id is 77 if it has one."""
    command = pb.BaseCommand(type=kind.value)
    for field in pb.BaseCommand.DESCRIPTOR.fields:
        if field.number == kind.value and field.message_type is not None:
            _fill(getattr(command, field.name))
            getattr(command, field.name).SetInParent()
    return command


def _fill(message) -> None:  # type: ignore[no-untyped-def]
    for field in message.DESCRIPTOR.fields:
        if field.name == "request_id":
            message.request_id = REQUEST_ID
        elif not field.is_required:
            continue
        elif field.message_type is not None:
            _fill(getattr(message, field.name))
            getattr(message, field.name).SetInParent()
        elif field.enum_type is not None:
            setattr(message, field.name, field.enum_type.values[0].number)
        elif field.cpp_type == field.CPPTYPE_STRING:
            setattr(message, field.name, b"x" if field.type == field.TYPE_BYTES else "x")
        else:
            setattr(message, field.name, 1)


def test_every_command_of_the_protocol_is_one_of_these() -> None:
    assert Counter(row.command for row in COMMANDS) == Counter(CommandType)


@pytest.mark.parametrize("more", [b"", LONG_FIELD], ids=["small", "above 4 KiB"])
async def test_every_command_that_is_not_served_is_refused_by_its_name_and_the_connection_lives(more: bytes) -> None:
    assert len(NOT_SERVED) > 50
    async with staged() as stage:
        client = await stage.connected()
        for kind in NOT_SERVED:
            command = filled(kind)
            getattr(command, pb.BaseCommand.DESCRIPTOR.fields_by_number[kind].name).MergeFromString(more)
            await client.send_command(command)
            error = await client.error(REQUEST_ID if request_id_field(kind) else REQUEST_ID_NONE)
            assert error.error == ServerError.NotAllowedError
            assert error.message == f"command {kind.name} is not served on a proxy's lookup connection"
        await client.ping()
        assert (await client.lookup(TOPIC)).brokerServiceUrl == stage.broker.service_url


@pytest.mark.parametrize("limited", [True, False], ids=["watchers limited", "not limited"])
async def test_every_command_passes_a_relay_unchanged_in_the_directions_in_which_it_is_sent(limited: bool) -> None:
    up = b"".join(frame(filled(row.command)) for row in COMMANDS if row.sender is not Sender.BROKER)
    down = b"".join(frame(filled(row.command)) for row in COMMANDS if row.sender is not Sender.CLIENT)
    async with paired(watchTopicListLimitEnabled=str(limited).lower()) as pair:
        received = asyncio.gather(pair.broker.receive(len(up)), pair.client.receive(len(down)))
        await asyncio.gather(pair.client.send(up), pair.broker.send(down))
        assert list(await received) == [up, down]


async def test_an_acknowledgement_of_many_messages_is_refused_with_its_own_id_which_stands_behind_them() -> None:
    command = filled(CommandType.ACK)
    command.ack.message_id.extend([pb.MessageIdData(ledgerId=1, entryId=1)] * 400)
    async with staged() as stage:
        client = await stage.connected()
        await client.send_command(command)
        assert (await client.error(REQUEST_ID)).error == ServerError.NotAllowedError


@pytest.mark.parametrize("content", [b"", b"\x08\x07", b"\x08\x07" + LONG_FIELD], ids=["none", "a number", "long"])
@pytest.mark.parametrize("number", [69, 83, 99, 1000])
async def test_a_number_of_a_later_release_is_refused_by_its_number_and_for_no_request(
    number: int, content: bytes
) -> None:
    """What stands first in it may be a consumer's number, and some other request's id."""
    async with staged() as stage:
        client = await stage.connected()
        await client.send(answer_frame(number, content))
        error = await client.error(REQUEST_ID_NONE)
        assert error.message == f"command number {number} is not served on a proxy's lookup connection"
        await client.ping()
