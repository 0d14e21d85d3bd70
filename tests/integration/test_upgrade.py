"""Beside a proxy of 0.1.0: each takes over from the other, and clients that change between them lose nothing.

`of_0_1_0` has what that version said: `take_over.json` the requests and answers of a take-over between two of its
processes, `answers.json` what its clients got.
"""

import asyncio
import json
import os
import re
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.commands import frame
from protocol.pb import PulsarApi_pb2 as pb
from proxy.core.version import VERSION
from tests.integration.test_take_over import NAMESPACE, NEVER_MILLIS, TAKES_OVER, TOPIC, left, took_over
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.clients.async_client import LOOPBACK, AsyncClient, connect_frame
from tests.support.clients.commands import command
from tests.support.patience import PATIENCE_SECONDS, patient
from tests.support.proxies.running_proxy import child_proxy, proxy_and_broker
from tests.transcripts.model import CLIENT, Words

BEFORE = Path(__file__).parent / "of_0_1_0"
HAND_OVER, DONE = json.loads((BEFORE / "take_over.json").read_text())
HEAD_END = "\r\n\r\n"


def body_of(message: str) -> dict[str, Any]:
    found = json.loads(message.partition(HEAD_END)[2])
    assert isinstance(found, dict)
    return found


def with_body(message: str, body: Mapping[str, Any]) -> bytes:
    """Put another body into a request or an answer."""
    head, written = message.partition(HEAD_END)[0], json.dumps(body)
    head = re.sub(r"(?i)(content-length): [0-9]+", rf"\g<1>: {len(written)}", head)
    return f"{head}{HEAD_END}{written}".encode()


def shape_of(body: Any) -> Any:
    """Give the names of a document, and the types that stand there."""
    if isinstance(body, dict):
        return {name: shape_of(value) for name, value in body.items()}
    return [shape_of(each) for each in body] if isinstance(body, list) else type(body).__name__


async def message_from(reader: asyncio.StreamReader) -> str:
    """Read a request or an answer with a body; nothing if the peer closes first."""
    with suppress(asyncio.IncompleteReadError):
        head = (await reader.readuntil(HEAD_END.encode())).decode()
        length = re.search(r"(?i)content-length: ([0-9]+)", head)
        assert length
        return head + (await reader.readexactly(int(length[1]))).decode()
    return ""


# --- this one hands over to 0.1.0 -----------------------------------------------------------------


async def told(path: Path, request: bytes) -> dict[str, Any]:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(request)
    answer = await message_from(reader)
    writer.close()
    assert answer.startswith("HTTP/1.1 200 ")
    return body_of(answer)


async def test_a_process_of_0_1_0_takes_over_from_this_one(tmp_path: Path) -> None:
    keys = {"metricsPort": 0, "serviceSocketPath": tmp_path / "clients.sock", "shutdownDrainMillis": NEVER_MILLIS}
    async with proxy_and_broker(tmp_path, **keys) as (proxy, _):
        control, client = tmp_path / "control.sock", await proxy.connected()
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.bind("")
            waiting.listen()
            waiting.settimeout(patient(PATIENCE_SECONDS))
            to = {"to": f"@{waiting.getsockname()[1:].decode()}"}
            document = await told(control, with_body(HAND_OVER["asked"], to))
            with waiting.accept()[0] as sender:
                _, numbers, _, _ = socket.recv_fds(sender, 1, 9)
        listening = dict(zip((row["key"] for row in document["sockets"]), map(open_socket, numbers), strict=True))
        try:
            # What 0.1.0 reads is there by the same names.
            assert shape_of(document) == shape_of(body_of(HAND_OVER["answered"]))
            assert [row["key"] for row in document["sockets"]] == [
                row["key"] for row in body_of(HAND_OVER["answered"])["sockets"]
            ]
            assert document["pid"] == proxy.child.pid
            assert shape_of(await told(control, with_body(DONE["asked"], to))) == shape_of(body_of(DONE["answered"]))
            assert await client.rest() == b""
            assert await proxy.exit_code() == 0
            # Who came since then waits for 0.1.0.
            newcomer = await AsyncClient.open(proxy.port)
            with listening["servicePort"].accept()[0] as accepted:
                assert accepted.getpeername() == newcomer.sock.getsockname()
            newcomer.close()
        finally:
            for each in listening.values():
                each.close()


def open_socket(number: int) -> socket.socket:
    found = socket.socket(fileno=number)
    # Its kernel side does not block, as the proxy has set it: the client may be connected before it can be accepted.
    found.settimeout(patient(PATIENCE_SECONDS))
    return found


# --- 0.1.0 hands over to this one -----------------------------------------------------------------


@dataclass
class Predecessor:
    """A process of 0.1.0 as one that takes over sees it: it answers at the control socket."""

    listening: Mapping[str, socket.socket]
    heard: list[str] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await message_from(reader)
        if request:
            self.heard.append(re.sub("@[0-9a-f]{5}", "@0001f", request))
            writer.write(self._hand_over(body_of(request)["to"]) if len(self.heard) == 1 else DONE["answered"].encode())
        writer.close()

    def _hand_over(self, to: str) -> bytes:
        document = body_of(HAND_OVER["answered"]) | {"pid": os.getpid()}
        document["sockets"] = [row for row in document["sockets"] if row["key"] in self.listening]
        with socket.socket(socket.AF_UNIX) as sending:
            sending.connect(f"\0{to[1:]}")
            numbers = [self.listening[row["key"]].fileno() for row in document["sockets"]]
            socket.send_fds(sending, [b"\n"], numbers)
        return with_body(HAND_OVER["answered"], document)


@asynccontextmanager
async def of_0_1_0(control: Path) -> AsyncIterator[Predecessor]:
    with socket.create_server((LOOPBACK, 0)) as clients, socket.create_server((LOOPBACK, 0)) as web:
        predecessor = Predecessor({"servicePort": clients, "webServicePort": web})
        server = await asyncio.start_unix_server(predecessor.answer, control)
        try:
            yield predecessor
        finally:
            server.close()


async def test_this_one_takes_over_from_a_process_of_0_1_0(tmp_path: Path) -> None:
    control = tmp_path / "control.sock"
    async with of_0_1_0(control) as predecessor, embedded() as broker:
        ports = {key: each.getsockname()[1] for key, each in predecessor.listening.items()}
        # Nobody has accepted this one yet.
        waits = await AsyncClient.open(ports["servicePort"])
        async with child_proxy(tmp_path, broker, options=TAKES_OVER, **ports) as proxy:
            await took_over(proxy)
            assert predecessor.heard == [HAND_OVER["asked"], DONE["asked"]], "as 0.1.0 asks itself"
            await waits.connect()
            waits.close()
            assert (proxy.port, proxy.web_port) == (ports["servicePort"], ports["webServicePort"])
            assert len((await (await proxy.connected()).topics(NAMESPACE)).topics) == 3
            assert (await proxy.get("/readyz")).startswith(b"HTTP/1.1 200 ")


# --- a mixed fleet --------------------------------------------------------------------------------


def embedded() -> EmbeddedBroker:
    return EmbeddedBroker(GeneratedTopics(1, 3, 40))


def questions(known: str, watched: str) -> dict[str, pb.BaseCommand]:
    """Give what clients ask for; they know lists of these hashes."""
    asks = {"request_id": 1, "namespace": NAMESPACE}
    watches = {**asks, "watcher_id": 1, "topics_pattern": "persistent://demo/ns-0/.*"}
    return {
        "lookup": command("LOOKUP", request_id=1, topic=TOPIC),
        "partitions": command("PARTITIONED_METADATA", request_id=1, topic=TOPIC),
        "list": command("GET_TOPICS_OF_NAMESPACE", **asks),
        "list by a pattern": command("GET_TOPICS_OF_NAMESPACE", **asks, topics_pattern="demo/ns-0/t-[12].*"),
        "list that is known": command("GET_TOPICS_OF_NAMESPACE", **asks, topics_hash=known),
        "schema": command("GET_SCHEMA", request_id=1, topic=TOPIC),
        "what brokers serve": command("CONSUMER_STATS", request_id=1, consumer_id=1),
        "watch": command("WATCH_TOPIC_LIST", **watches),
        "watch what is known": command("WATCH_TOPIC_LIST", **watches, topics_hash=watched),
    }


async def answers_of(port: int, broker: EmbeddedBroker, known: str, watched: str) -> dict[str, Any]:
    """Ask a proxy all that, each time over a connection of its own, and give what came by what was asked."""
    words, found = Words({broker.port: "<broker>"}, ["0.1.0", VERSION]), {}
    for name, question in questions(known, watched).items():
        client = await AsyncClient.open(port)
        try:
            target = f"{LOOPBACK}:{broker.port}" if name.startswith("watch") else None
            for each in (connect_frame(target), frame(question)):
                await client.send(each)
                answer = words.event(CLIENT, "got", await client.frame())
                found[f"{name}: {answer.what}"] = json.loads(answer.line())["fields"]
        finally:
            client.close()
    return found


async def test_a_client_that_comes_from_a_proxy_of_0_1_0_gets_the_same_answers_here(tmp_path: Path) -> None:
    recorded = json.loads((BEFORE / "answers.json").read_text())
    known = recorded["list: GET_TOPICS_OF_NAMESPACE_RESPONSE"]["topics_hash"]
    watched = recorded["watch: WATCH_TOPIC_LIST_SUCCESS"]["topics_hash"]
    async with embedded() as broker, child_proxy(tmp_path, broker, brokerProxyAllowedTargetPorts="*") as proxy:
        assert await answers_of(proxy.port, broker, known, watched) == recorded
        await left(proxy)
