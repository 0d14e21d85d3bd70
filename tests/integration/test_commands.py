"""Each command at the proxy itself: refused by name, or passed on, as docs/reference/commands.md says."""

import asyncio

import pytest

from protocol.command_type import CommandType, request_id_field
from protocol.commands import REQUEST_ID_NONE, frame
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from scripts.command_table import COMMANDS, REFUSED, Sender, from_client
from tests.integration.test_direct_mode import paired
from tests.support.proxies.proxy_under_test import TOPIC, staged

NOT_SERVED = [row.command for row in COMMANDS if from_client(row.command) == REFUSED]
REQUEST_ID = 77


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


async def test_every_command_that_is_not_served_is_refused_by_its_name_and_the_connection_lives() -> None:
    assert len(NOT_SERVED) > 50
    async with staged() as stage:
        client = await stage.connected()
        for kind in NOT_SERVED:
            await client.send_command(filled(kind))
            error = await client.error(REQUEST_ID if request_id_field(kind) else REQUEST_ID_NONE)
            assert error.error == ServerError.NotAllowedError
            assert error.message == f"command {kind.name} is not served on a proxy's lookup connection"
        await client.ping()
        assert (await client.lookup(TOPIC)).brokerServiceUrl == stage.broker.service_url


@pytest.mark.usefixtures("relay_engine")
@pytest.mark.parametrize("limited", [True, False], ids=["watchers limited", "not limited"])
async def test_every_command_passes_a_relay_unchanged_in_the_directions_in_which_it_is_sent(limited: bool) -> None:
    up = b"".join(frame(filled(row.command)) for row in COMMANDS if row.sender is not Sender.BROKER)
    down = b"".join(frame(filled(row.command)) for row in COMMANDS if row.sender is not Sender.CLIENT)
    async with paired(watchTopicListLimitEnabled=str(limited).lower()) as pair:
        received = asyncio.gather(pair.broker.receive(len(up)), pair.client.receive(len(down)))
        await asyncio.gather(pair.client.send(up), pair.broker.send(down))
        assert list(await received) == [up, down]


@pytest.mark.parametrize("number", [69, 82, 99, 1000])
async def test_a_number_of_a_later_release_is_refused_by_its_number(number: int) -> None:
    command = b"\x08" + (bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7]))
    async with staged() as stage:
        client = await stage.connected()
        await client.send((4 + len(command)).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command)
        error = await client.error(REQUEST_ID_NONE)
        assert error.message == f"command number {number} is not served on a proxy's lookup connection"
        await client.ping()
