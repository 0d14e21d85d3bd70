"""The demo's broker: lookups and topic lists of generated topics, and the way a connection of a broker is served.

Rule: memory is bounded whatever clients do: a piece of an answer is made when the one before has left, a connection
with 1,000 requests that wait is not read, and a namespace needs no memory of its own: all have the names of the first,
with another namespace in them. `python -m proxy.cli.demo.broker NAMESPACES TOPICS NAME_BYTES` runs it until SIGTERM: it
prints its address as a line of JSON, and its counts at the end.
"""

import asyncio
import json
import re
import signal
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import Final

import uvloop

from protocol import commands
from protocol.command_type import CommandType, request_id_field
from protocol.errors import ProtocolError, ServerError
from protocol.frames import Frame, answer_prefix
from protocol.framing import FrameDecoder
from protocol.pb import PulsarApi_pb2 as pb
from proxy.core.descriptors import raise_descriptor_limit

LOOPBACK: Final = "127.0.0.1"
MOST_WAITING: Final = 1000
READ_BYTES: Final = 64 * 1024
PIECE_BYTES: Final = 64 * 1024
LARGEST_NAME_BYTES: Final = 4096
DOMAIN: Final = "persistent://"


async def commands_of(reader: asyncio.StreamReader) -> AsyncIterator[pb.BaseCommand]:
    """Yield the commands of a connection until it ends."""
    decoder = FrameDecoder()
    while data := await reader.read(READ_BYTES):
        decoder.receive_data(data)
        while isinstance(event := decoder.next_event(), Frame):
            yield commands.decode_command(event.command)


async def serve(
    answer: Callable[[pb.BaseCommand], Iterable[bytes]], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer the commands of a connection one after the other until it ends; `answer` gives the pieces of frames."""
    answers = asyncio.Queue[Iterable[bytes]](MOST_WAITING)
    writer.transport.set_write_buffer_limits(high=0)
    try:
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(_write(answers, writer))
            async for command in commands_of(reader):
                await answers.put(answer(command))
            writing.cancel()
    except* (ConnectionError, ProtocolError):
        writer.transport.abort()
    finally:
        writer.close()


async def _write(answers: asyncio.Queue[Iterable[bytes]], writer: asyncio.StreamWriter) -> None:
    while True:
        for piece in await answers.get():
            if writer.is_closing():
                raise ConnectionResetError
            writer.write(piece)
            await writer.drain()


class GeneratedTopics:
    """`namespaces` namespaces `demo/ns-0...` with `topics` persistent topics of `name_bytes` bytes each.

    `tails` are the names without domain and namespace. Raises ValueError for a size into which the names do not fit.
    """

    def __init__(self, namespaces: int, topics: int, name_bytes: int) -> None:
        self.namespaces = namespaces
        self._digits = len(str(max(namespaces - 1, 0)))
        self._number = re.compile(rf"demo/ns-(\d{{{self._digits}}})")
        first, digits = DOMAIN + self.namespace(0), len(str(max(topics - 1, 0)))
        smallest = len(f"{first}/t-") + digits
        if not smallest <= name_bytes <= LARGEST_NAME_BYTES:
            raise ValueError(f"got {name_bytes} name bytes, expected {smallest} to {LARGEST_NAME_BYTES}")
        self.tails = [f"/t-{number:0{digits}}".ljust(name_bytes - len(first), "x") for number in range(topics)]
        names, step = [first + tail for tail in self.tails], PIECE_BYTES // (name_bytes + 4)
        answers = (pb.CommandGetTopicsOfNamespaceResponse(topics=names[n : n + step]) for n in range(0, topics, step))
        self._first_pieces = [answer.SerializePartialToString() for answer in answers]
        self.encoded_bytes = sum(map(len, self._first_pieces))

    def namespace(self, number: int) -> str:
        """Return the name of a namespace."""
        return f"demo/ns-{number:0{self._digits}}"

    def __contains__(self, namespace: str) -> bool:
        found = self._number.fullmatch(namespace)
        return found is not None and int(found[1]) < self.namespaces

    def pieces(self, namespace: str) -> Iterator[bytes]:
        """Return an iterator of a namespace's encoded names, in pieces of about 64 KiB."""
        first, other = self.namespace(0).encode(), namespace.encode()
        return (piece.replace(first, other) for piece in self._first_pieces)

    def hash(self, namespace: str) -> str:
        """Return eight digits, equal for equal lists: a client only sends a hash back, and Pulsar's takes long."""
        return f"{zlib.crc32(f'{namespace} {len(self.tails)} {self.encoded_bytes}'.encode()):08x}"


class ListBroker:
    """Answers as a broker with these topics, none of which is partitioned; counts requests for lists."""

    def __init__(self, topics: GeneratedTopics) -> None:
        self._topics = topics
        self.url = ""
        self.questions = self.open_questions = self.most_open = 0

    def answer(self, command: pb.BaseCommand) -> Iterable[bytes]:
        """Return the answer to a command; requests other than lookups and lists are refused."""
        kind = command.type
        if kind == CommandType.CONNECT:
            return (commands.connected_lookup(command.connect, "-demo"),)
        if kind == CommandType.PING:
            return (commands.PONG_FRAME,)
        if kind == CommandType.GET_TOPICS_OF_NAMESPACE:
            self.questions += 1
            self.open_questions += 1
            self.most_open = max(self.most_open, self.open_questions)
            return self._list(command.getTopicsOfNamespace)
        if kind == CommandType.LOOKUP:
            return (self._lookup(command.lookupTopic),)
        if kind == CommandType.PARTITIONED_METADATA:
            return (commands.partition_metadata_success(command.partitionMetadata.request_id, 0),)
        field = request_id_field(kind)
        if field is None:
            return ()
        refusal = "the demo's broker serves lookups and topic lists only"
        return (commands.error(getattr(command, field).request_id, ServerError.NotAllowedError, refusal),)

    def _list(self, request: pb.CommandGetTopicsOfNamespace) -> Iterator[bytes]:
        pieces: Iterable[bytes] = ()
        size = 0
        if request.mode != pb.CommandGetTopicsOfNamespace.NON_PERSISTENT and request.namespace in self._topics:
            pieces, size = self._topics.pieces(request.namespace), self._topics.encoded_bytes
        digits = self._topics.hash(request.namespace)
        flags = pb.CommandGetTopicsOfNamespaceResponse(filtered=False, topics_hash=digits, changed=True)
        last = flags.SerializePartialToString()
        yield answer_prefix(CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE, request.request_id, size + len(last))
        yield from pieces
        # A reader that has the whole answer may ask again before this goes on.
        self.open_questions -= 1
        yield last

    def _lookup(self, request: pb.CommandLookupTopic) -> bytes:
        namespace = request.topic.rpartition("://")[2].rpartition("/")[0]
        if namespace not in self._topics:
            missing = f"namespace {namespace} not found"
            return commands.lookup_failed(request.request_id, ServerError.TopicNotFound, missing)
        return commands.lookup_connect(request.request_id, self.url)


async def _run(broker: ListBroker) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    server = await asyncio.start_server(partial(serve, broker.answer), LOOPBACK, 0, backlog=4096)
    broker.url = f"pulsar://{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    print(json.dumps({"listening": broker.url}), flush=True)
    await stopping.wait()
    server.close()
    print(json.dumps({"topic_questions": broker.questions, "max_open_questions": broker.most_open}), flush=True)


if __name__ == "__main__":
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(ListBroker(GeneratedTopics(*map(int, sys.argv[1:])))))
