"""The places of lookups are never taken by those who have many, and a lookup's clock begins before its turn."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers.target import BrokerAddress
from proxy.core.tasks import STEP_SECONDS
from proxy.requests.client import Client
from proxy.requests.forwarding import ForwardedRequest, RequestParts
from proxy.requests.lookups import FEW_OUTSTANDING, LookupService
from tests.support.brokers.one_broker import SilentBroker, side_of
from tests.support.clients.async_client import lookup_frame
from tests.support.clients.list_clients import commands_in, turns
from tests.support.cores import core_of
from tests.support.loops.loops import run_virtual
from tests.support.proxies.client_desk import desk
from tests.support.proxies.counted import counted_by

SECONDS = 10.0
ASKER = "192.0.2.1", 1


class Sent:
    """What a client was sent (`proxy.net.output.Output`)."""

    def __init__(self, frames: list[bytes]) -> None:
        self.send = frames.append

    def gather(self) -> None:
        """Do nothing: frames are noted as they come."""

    def send_gathered(self) -> None:
        """Do nothing: frames were noted as they came."""


def lookups_of(limit: int) -> tuple[LookupService, AsyncSemaphore]:
    loop = asyncio.get_running_loop()
    places = AsyncSemaphore("lookups", limit, max_queue=0, timeout_seconds=1.0, clock=loop)
    broker = SilentBroker(BrokerAddress("broker", 6650))
    lookups = LookupService(core_of(), side_of(broker), places)
    lookups.apply(limit, SECONDS)
    return lookups, places


def client_of(sent: list[bytes], over: asyncio.Event) -> Client:
    """Give a client with one request, told when that is over."""
    return cast(Client, SimpleNamespace(principal=None, output=Sent(sent), outstanding=1, fewer_requests=over.set))


@pytest.mark.threat("lookups-wait-for-ever")
@pytest.mark.parametrize("waited_seconds", [0.0, 7.0])
@pytest.mark.parametrize(
    "kind", [CommandType.LOOKUP, CommandType.PARTITIONED_METADATA, CommandType.GET_OR_CREATE_SCHEMA]
)
def test_the_clock_of_a_request_begins_when_it_joined_the_line(kind: CommandType, waited_seconds: float) -> None:
    async def play() -> None:
        lookups, places = lookups_of(1)
        sent: list[bytes] = []
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        client = client_of(sent, over)
        began = loop.time()
        slot = lookups.try_begin(ASKER, began - waited_seconds if waited_seconds else 0.0)
        assert slot is not None
        command = pb.BaseCommand(type=cast(Any, int(kind)))
        if kind == CommandType.LOOKUP:
            command.lookupTopic.CopyFrom(pb.CommandLookupTopic(request_id=1, topic="t"))
        elif kind == CommandType.PARTITIONED_METADATA:
            command.partitionMetadata.CopyFrom(pb.CommandPartitionedTopicMetadata(request_id=1, topic="t"))
        else:
            schema = pb.Schema(name="s", schema_data=b"", type=pb.Schema.Json)
            command.getOrCreateSchema.CopyFrom(pb.CommandGetOrCreateSchema(request_id=1, topic="t/n/t", schema=schema))
        waiting: dict[ForwardedRequest, Permit | None] = {}
        waiting[lookups.start(command, RequestParts(client, slot, waiting))] = None
        await over.wait()
        assert (client.outstanding, waiting) == (0, {})
        assert len(commands_in(b"".join(sent))[0]) == 1
        assert 0 <= loop.time() - began - (SECONDS - waited_seconds) <= STEP_SECONDS + 1e-6
        assert [lookups.too_late(began - waited_seconds), lookups.too_late(loop.time())] == [True, False]
        assert places.held == 0

    run_virtual(play())


async def test_the_fewer_places_are_left_the_fewer_a_connection_may_have() -> None:
    lookups, places = lookups_of(1000)
    most = []
    while lookups.try_begin(ASKER, 0.0) is not None:
        enough = (number for number in range(1001) if lookups.enough_for_one(number))
        most.append(next(enough, None))
    assert places.held == len(most) == 1000
    assert set(most[:750]) == {None}
    assert most[750:] == sorted(most[750:], key=lambda number: -(number or 0))
    assert (most[750], most[875], most[-1]) == (FEW_OUTSTANDING, FEW_OUTSTANDING // 2, 0)


@pytest.mark.threat("lookups-of-many-connections")
async def test_a_crowd_of_pipelining_connections_leaves_places_to_newcomers() -> None:
    async with desk() as on:
        on.services.requests.lookups.forwarder.brokers = SilentBroker(BrokerAddress("broker", 6650))
        crowd = [on.visitor() for _ in range(100)]
        for visitor in crowd:
            visitor.arrives(b"".join(lookup_frame(number, "persistent://t/n/t") for number in range(1, 49)))
        while len(on.loop_budget):
            await turns(1)
        newcomer = on.visitor()
        newcomer.arrives(lookup_frame(1, "persistent://t/n/t"))
        await turns(2)
        assert (newcomer.session.outstanding, newcomer.answers()) == (1, [])
        assert not any(visitor.answers() for visitor in crowd)
        assert on.slots.held < on.slots.limit
        assert counted_by(on.counters, "refused_requests") == {}


async def test_a_refusal_for_want_of_time_says_so() -> None:
    lookups, _ = lookups_of(1)
    late = lookups.late()
    assert (late.code, late.stage, late.limit) == (ServerError.TooManyRequests, "turns", int(SECONDS))
