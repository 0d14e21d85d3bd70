"""KIP-72 at requests: `maxConcurrentLookupRequestMB` bounds the bytes of commands beside their number (K2)."""

import asyncio

import pytest

from protocol.command_type import CommandType
from protocol.commands import frame
from protocol.pb import PulsarApi_pb2 as pb
from proxy.requests.request_bytes import RESERVE_OF, RequestBytes
from tests.support.clients.async_client import LOOPBACK, AsyncClient, lookup_frame
from tests.support.proxies.proxy_under_test import MIB, Stage, staged

# A frame that needs no permit of its own, and as many of them as the limit takes.
TOPIC = "persistent://public/default/" + "x" * 3500
FRAME_BYTES = len(lookup_frame(1, TOPIC))
FULL = MIB // FRAME_BYTES + 2
CLIENTS = 10
CROWD = 40
OTHER_ADDRESS = "127.0.0.2"


async def ask(client: AsyncClient, count: int) -> None:
    for _ in range(count):
        await client.send(lookup_frame(client.next_id(), TOPIC))


def books(stage: Stage) -> RequestBytes:
    held = stage.proxy.services.requests.lookups.request_bytes
    assert isinstance(held, RequestBytes)
    return held


async def filled(stage: Stage) -> list[AsyncClient]:
    """Have clients ask for more than the limit takes, of a broker that does not answer."""
    clients = [await stage.connected() for _ in range(CLIENTS)]
    for client in clients:
        await ask(client, 2 * FULL // CLIENTS)
    held = books(stage)
    await stage.until(lambda: held.record().used_bytes >= held.record().limit_bytes, "a limit that is reached")
    await stage.until(lambda: held.record().muted > 0, "clients that wait")
    return clients


async def answers(client: AsyncClient, count: int) -> None:
    while count:
        kind = (await client.answer()).type
        # A client that waits is sent a PONG now and then.
        assert kind in (CommandType.LOOKUP_RESPONSE, CommandType.PONG)
        count -= kind == CommandType.LOOKUP_RESPONSE


@pytest.mark.threat("large-commands-silent-broker")
async def test_k2_bytes_are_bounded_beside_the_number_and_every_request_has_its_answer() -> None:
    async with staged(maxConcurrentLookupRequestMB=1) as stage:
        stage.broker.script.hold(CommandType.LOOKUP)
        clients = await filled(stage)
        held = books(stage)
        # K4: the last that was granted may pass the limit.
        assert held.record().used_bytes < MIB + FRAME_BYTES
        assert stage.lookups.held <= FULL
        stage.broker.script.gates.pop(CommandType.LOOKUP).set()
        # K9: those that waited have their turns.
        await asyncio.gather(*(answers(client, 2 * FULL // CLIENTS) for client in clients))
        await stage.until(lambda: held.record().used_bytes == 0 and held.record().muted == 0, "all memory back")
        assert held.record().depleted_millis > 0


async def test_k5_others_are_told_that_they_live_while_commands_wait() -> None:
    async with staged(maxConcurrentLookupRequestMB=1) as stage:
        gate = stage.broker.script.hold(CommandType.LOOKUP)
        clients = await filled(stage)
        # K7: handshakes and PINGs need no memory.
        other = await stage.connected()
        await other.ping()
        gate.set()
        await asyncio.gather(*(answers(client, 2 * FULL // CLIENTS) for client in clients))


@pytest.mark.threat("large-commands-silent-broker")
@pytest.mark.parametrize("address", [LOOPBACK, OTHER_ADDRESS])
async def test_k5_who_asks_for_one_thing_is_answered_while_the_brokers_of_others_are_stuck(address: str) -> None:
    async with staged(maxConcurrentLookupRequestMB=1) as stage:
        gate = stage.broker.script.hold(CommandType.LOOKUP)
        clients = await filled(stage)
        neighbour = await stage.client(source=address)
        await neighbour.connect()
        asked = pb.CommandPartitionedTopicMetadata(topic=TOPIC, request_id=7)
        await neighbour.send(frame(pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA, partitionMetadata=asked)))
        assert (await neighbour.answer()).partitionMetadataResponse.request_id == 7
        gate.set()
        await asyncio.gather(*(answers(client, 2 * FULL // CLIENTS) for client in clients))


@pytest.mark.threat("large-commands-silent-broker")
async def test_k9_a_crowd_of_one_network_that_waits_keeps_no_other_network_waiting() -> None:
    async with staged(maxConcurrentLookupRequestMB=1) as stage:
        gate = stage.broker.script.hold(CommandType.LOOKUP)
        clients = await filled(stage)
        crowd = [await stage.connected() for _ in range(CROWD)]
        for client in crowd:
            await ask(client, 3)
        await stage.until(lambda: all(stage.session_of(each).holds for each in crowd), "a crowd that waits")
        held = books(stage)
        assert MIB < held.record().used_bytes < MIB + MIB // RESERVE_OF // 2 + FRAME_BYTES
        neighbour = await stage.client(source=OTHER_ADDRESS)
        await neighbour.connect()
        await ask(neighbour, 1)
        await stage.until(lambda: stage.session_of(neighbour).outstanding == 1, "a lookup that is at the broker")
        assert stage.session_of(neighbour).holds == ()
        assert held.record().muted == CLIENTS + CROWD
        gate.set()
        await answers(neighbour, 1)
        await asyncio.gather(*(answers(client, 2 * FULL // CLIENTS) for client in clients))
        await asyncio.gather(*(answers(client, 3) for client in crowd))
        await stage.until(lambda: len(held) == held.record().used_bytes == held.record().muted == 0, "all memory back")


async def test_k6_memory_comes_back_with_clients_that_leave() -> None:
    async with staged(maxConcurrentLookupRequestMB=1) as stage:
        gate = stage.broker.script.hold(CommandType.LOOKUP)
        for client in await filled(stage):
            client.reset()
        await stage.until(lambda: not len(stage.proxy.sessions), "no client")
        held = books(stage)
        await stage.until(lambda: held.record().muted == 0, "nobody who waits")
        # What a broker works on still counts.
        gate.set()
        await stage.until(lambda: held.record().used_bytes == 0, "all memory back")


async def test_k1_off_keeps_no_books() -> None:
    async with staged(maxConcurrentLookupRequestMB=0) as stage:
        assert stage.proxy.services.requests.lookups.request_bytes is None
        assert (await (await stage.connected()).lookup("persistent://public/default/t")).request_id
