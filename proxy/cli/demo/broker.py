"""The embedded broker: a listening socket, its connections, and the topics, script and record they share.

The broker serves lookups, topic lists, topic watchers and schemas of Pulsar's binary protocol. Rule: memory is bounded
whatever clients do; `session` bounds each connection. To start a broker by hand, run
`python -m proxy.cli.demo.broker --port 6660`: the broker prints its address as a line of JSON, and its counts at the
end.
"""

import argparse
import asyncio
import json
import resource
import signal
import ssl
from collections.abc import Sequence
from typing import Final, Self

import uvloop

from proxy.cli.demo.answers import Answers
from proxy.cli.demo.record import Record
from proxy.cli.demo.script import Script
from proxy.cli.demo.session import Session
from proxy.cli.demo.topics import GeneratedTopics, ListedTopics, TopicStore
from proxy.core.tasks import TaskScope

LOOPBACK: Final = "127.0.0.1"
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a broker with generated topics until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m proxy.cli.demo.broker", description="run an embedded broker")
    parser.add_argument("--port", type=int, default=6650, help="port; 0 for any free port (default: %(default)s)")
    parser.add_argument("--namespaces", type=int, default=1, help="namespaces demo/ns-0, ... (default: %(default)s)")
    parser.add_argument("--topics", type=int, default=10_000, help="topics in each namespace (default: %(default)s)")
    parser.add_argument("--name-bytes", type=int, default=100, help="bytes of each topic's name (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        store = GeneratedTopics(options.namespaces, options.topics, options.name_bytes)
    except ValueError as error:
        parser.error(str(error))
    raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(store, options.port))
    return 0


def raise_file_limit() -> None:
    """Raise the limit of open files for this process and its children to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _run(store: TopicStore, port: int) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    broker = EmbeddedBroker(store)
    await broker.start(port)
    print(json.dumps({"listening": broker.service_url, "port": broker.port}), flush=True)
    await stopping.wait()
    record = broker.record
    await broker.stop()
    seen = {
        "connections": record.connections_accepted,
        "topic_questions": record.topic_questions,
        "max_outstanding_topic_questions": record.max_outstanding_topic_questions,
        "sent_bytes": record.sent_bytes,
    }
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
