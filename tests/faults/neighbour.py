"""Own the client beside a fault: it goes on asking, by every purpose that the fault does not strike.

Rule: whatever it gets that is no right answer is an error of the cell. It goes past the ways of the flow.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers.pool import Purpose
from proxy.core.tasks import TaskScope
from tests.faults.scene import Scene
from tests.support.brokers.embedded.session import message_frame
from tests.support.clients.async_client import (
    PING,
    AsyncClient,
    eventually,
    lookup_frame,
    schema_frame,
    topics_frame,
)
from tests.support.patience import in_time
from tests.support.proxies.proxy_under_test import TOPIC, namespace

OWN_LIST = namespace(3)
OTHER_TOPIC = f"persistent://{namespace(3)}/other"
MESSAGE = message_frame(1000)


class Neighbour:
    """One client in lookup mode and one relay; `rounds` counts what was asked and answered in whole rounds."""

    def __init__(self, at: Scene, spared: Purpose | None) -> None:
        self._at = at
        self._spared = spared
        self._scope = TaskScope(self._failed)
        self._run = asyncio.Event()
        self._still = asyncio.Event()
        self._names = list(at.stage.broker.answers.store.names(OWN_LIST))
        self.clients: list[AsyncClient] = []
        self.rounds = 0
        self.failure: BaseException | None = None

    async def start(self) -> None:
        """Connect, and ask from now on."""
        for target in (None, f"127.0.0.1:{self._at.echo_port}"):
            client = await AsyncClient.open(self._at.stage.proxy.port)
            self.clients.append(client)
            await client.send(self._at.hello(target, "neighbour"))
            assert (await client.answer(pong=True)).HasField("connected")
        self._scope.start(self._go_on())
        self.go()
        await eventually(lambda: self.rounds or self.failure, "a round of the neighbour")
        self.check()

    def go(self) -> None:
        """Ask on."""
        self._still.clear()
        self._run.set()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Stop between two rounds until the block ends; raises what went wrong."""
        self._run.clear()
        async with in_time():
            await self._still.wait()
        self.check()
        try:
            yield
        finally:
            self.go()

    def check(self) -> None:
        """Raise what went wrong."""
        if self.failure is not None:
            raise AssertionError(f"the neighbour: {self.failure!r}") from self.failure

    async def close(self) -> None:
        """Leave."""
        self._scope.cancel()
        await self._scope.emptied()
        for client in self.clients:
            client.close()

    def _failed(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self._still.set()

    async def _go_on(self) -> None:
        while True:
            if not self._run.is_set():
                self._still.set()
                await self._run.wait()
            await self._round()
            self.rounds += 1
            # A pause of a client: without it the neighbour would be a flood.
            await asyncio.sleep(0.03)

    async def _asked(self, request: bytes) -> pb.BaseCommand:
        await self.clients[0].send(request)
        return await self.clients[0].answer(pong=True)

    async def _round(self) -> None:
        """Ask everything once."""
        number = self.rounds + 1
        assert (await self._asked(PING)).type == pb.BaseCommand.PONG
        if self._spared is not Purpose.LOOKUPS:
            found = (await self._asked(lookup_frame(number, TOPIC))).lookupTopicResponse
            assert (found.request_id, found.brokerServiceUrl) == (number, self._at.stage.broker.service_url), found
        if self._spared is not Purpose.LISTS:
            answer = await self._asked(topics_frame(number, OWN_LIST))
            listed = answer.getTopicsOfNamespaceResponse
            assert (listed.request_id, list(listed.topics)) == (number, self._names), answer.error
        if self._spared is not Purpose.SCHEMAS:
            schema = (await self._asked(schema_frame(number, OTHER_TOPIC))).getSchemaResponse
            assert (schema.request_id, schema.error_code) == (number, pb.TopicNotFound), schema
        relay = self.clients[1]
        await relay.send(MESSAGE)
        assert await relay.receive(len(MESSAGE)) == MESSAGE
