"""The flow of the event log's topic: lists of a client become events, and a broker behind `own_way` takes them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from protocol.commands import PONG_FRAME, decode_command, frame, request_id_of
from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers.pool import Purpose
from tests.faults.flows.flow import Flow, Refused
from tests.faults.flows.requests import LISTED, whole_list
from tests.support.brokers.raw_broker import CONNECTED, raw_broker
from tests.support.clients.async_client import AsyncClient
from tests.support.clients.commands import command
from tests.support.faults.proxy import FaultProxy

if TYPE_CHECKING:
    from tests.faults.scene import Scene

TOPIC = "persistent://public/log/events"
LISTS = 3


class EventTopic(Flow):
    """Lists, and their events at the topic; the neighbour asks for no list, whose event would be counted."""

    purpose = Purpose.LISTS
    own = True
    client: AsyncClient

    def __init__(self, side: str) -> None:
        super().__init__(side)
        self._url = ""

    def keys(self, own_way: FaultProxy) -> dict[str, Any]:
        self._url = own_way.url
        return {"eventLogTopic": TOPIC, "eventLogTopicServiceURL": own_way.url}

    @asynccontextmanager
    async def server(self) -> AsyncIterator[int]:
        async with raw_broker(self._serve) as broker:
            yield broker.port

    async def prepare(self, at: "Scene") -> None:
        self.client = await at.connected(at.stage.proxy.port)

    async def ask(self, at: "Scene") -> None:
        assert at.stage.proxy.event_log is not None
        numbers = at.stage.proxy.event_log.sinks
        before = numbers()["topic"]
        for _ in range(LISTS):
            await whole_list(at, self.client, await self.client.ask_topics(LISTED))
        # Nobody would answer PINGs while the events are on their way.
        self.client.close()

        def done() -> int:
            now = numbers()["topic"]
            return now.written + now.dropped - before.written - before.dropped

        await at.stage.until(lambda: done() >= LISTS, "events at the topic")
        dropped = numbers()["topic"].dropped - before.dropped
        if dropped:
            raise Refused(f"{dropped} events were dropped")

    async def _serve(self, peer: AsyncClient) -> None:
        """Do what a broker does for a producer."""
        while True:
            whole = await peer.frame()
            size = int.from_bytes(whole[4:8], "big")
            answer = self._answer(decode_command(whole[8 : 8 + size]))
            if answer:
                await peer.send(answer)

    def _answer(self, asked: pb.BaseCommand) -> bytes:
        if asked.type == pb.BaseCommand.CONNECT:
            return CONNECTED
        if asked.type == pb.BaseCommand.PING:
            return PONG_FRAME
        asker = {"request_id": request_id_of(asked)}
        match asked.type:
            case pb.BaseCommand.PARTITIONED_METADATA:
                made = command("PARTITIONED_METADATA_RESPONSE", **asker, partitions=0, response="Success")
            case pb.BaseCommand.LOOKUP:
                place = {"brokerServiceUrl": self._url, "response": "Connect", "authoritative": True}
                made = command("LOOKUP_RESPONSE", **asker, **place)
            case pb.BaseCommand.PRODUCER:
                made = command("PRODUCER_SUCCESS", **asker, producer_name="events")
            case pb.BaseCommand.SEND:
                sent = {"producer_id": asked.send.producer_id, "sequence_id": asked.send.sequence_id}
                made = command("SEND_RECEIPT", **sent, message_id=pb.MessageIdData(ledgerId=1, entryId=1))
            case pb.BaseCommand.CLOSE_PRODUCER:
                made = command("SUCCESS", **asker)
            case _:
                return b""
        return frame(made)
