"""The embedded broker: a listening socket, its connections, and the topics, script and record they share.

The broker serves lookups, topic lists, topic watchers and schemas of Pulsar's binary protocol. Rule: memory is bounded
whatever clients do; `session` bounds each connection. What `pulsar-proxy demo`
runs is another one (`proxy/cli/demo/broker.py`).
"""

import asyncio
import ssl
from collections.abc import Sequence
from typing import Final, Self

from proxy.cli.demo.broker import LOOPBACK
from proxy.core.tasks import TaskScope
from tests.support.brokers.embedded.answers import Answers
from tests.support.brokers.embedded.record import Record
from tests.support.brokers.embedded.script import Script
from tests.support.brokers.embedded.session import Session
from tests.support.brokers.embedded.topics import ListedTopics, TopicStore

_BACKLOG: Final = 4096


class EmbeddedBroker:
    """A broker on the running loop: `async with EmbeddedBroker(store) as broker`.

    `script` holds the simulated faults, `record` the received commands, `connections` the open connections.
    """

    def __init__(
        self,
        store: TopicStore | None = None,
        script: Script | None = None,
        host: str = LOOPBACK,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.script = Script() if script is None else script
        self.record = Record()
        self.answers = Answers(ListedTopics() if store is None else store, self.script)
        self.connections: set[Session] = set()
        self.host = host
        self._tls = tls
        self.port = 0
        self._scope = TaskScope(self._crashed)
        self._server: asyncio.Server | None = None
        self._crash: BaseException | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def service_url(self) -> str:
        """The address: `pulsar://host:port`, or `pulsar+ssl://host:port` with TLS."""
        return self.answers.service_url

    async def start(self, port: int = 0) -> None:
        """Listen on `port`, 0 for a free port; raises OSError if the port cannot be bound."""
        self._server = await asyncio.start_server(self._accepted, self.host, port, backlog=_BACKLOG, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        scheme = "pulsar" if self._tls is None else "pulsar+ssl"
        self.answers.service_url = f"{scheme}://{self.host}:{self.port}"

    async def stop(self) -> None:
        """Cut all connections and stop listening; raises the first unexpected exception of a connection."""
        if self._server is not None:
            self._server.close()
        for session in self.connections:
            session.abort()
        self._scope.cancel()
        await self._scope.emptied()
        if self._server is not None:
            await self._server.wait_closed()
        if self._crash is not None:
            raise self._crash

    async def announce(self, new: Sequence[str] = (), deleted: Sequence[str] = ()) -> None:
        """Notify all watchers of created and deleted topics, and wait until every update is written."""
        for session in list(self.connections):
            await session.send_updates(new, deleted)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.record.connections_accepted += 1
        self._scope.start(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        scope = TaskScope(self._crashed)
        session = Session((reader, writer), self.answers, self.record, scope)
        self.connections.add(session)
        try:
            await session.run()
        finally:
            self.connections.discard(session)

    def _crashed(self, error: BaseException) -> None:
        self._crash = self._crash or error
