"""What the clients of a soak do: each action is one client, from its connection to its end.

Rule: an action returns if the proxy did what it should, and raises otherwise; garbage must be answered by an end of
the connection. Knows addresses, not processes.
"""

import asyncio
import os
import random
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import aiohttp

from protocol.pb import PulsarApi_pb2 as pb
from tests.support.auth.tls import TlsClient
from tests.support.clients.async_client import AsyncClient, Closed, new_schema_frame
from tests.support.clients.commands import command

SMALL_BUFFER: Final = 4096
ECHOED_BYTES: Final = 48 * 1024
FLOODED_BYTES: Final = 96 * 1024
SCHEMA_BYTES: Final = 200 * 1024
UPLOADED_BYTES: Final = 100_000
ADMIN: Final = "/admin/v2/clusters"
SOCKET: Final = "/ws/v2/producer/persistent/t/n/topic"


@dataclass(frozen=True)
class Place:
    """Where the proxy and its brokers are, what they serve, the dice of this soak, and a client's longest pause."""

    port: int
    tls_port: int
    web_port: int
    brokers: Mapping[str, int]
    namespaces: int
    topics: int
    trusting: ssl.SSLContext
    dice: random.Random
    pause_seconds: float = 3.0

    async def pause(self, part: float = 1.0) -> None:
        """Do nothing for some part of the longest pause."""
        await asyncio.sleep(self.dice.uniform(0, part * self.pause_seconds))

    def namespace(self) -> str:
        """Give some namespace; a few are asked for much more often, so that lists are shared."""
        few = 4 if self.dice.random() < 0.5 else self.namespaces
        return f"demo/ns-{self.dice.randrange(few):0{len(str(self.namespaces - 1))}}"

    def topic(self) -> str:
        """Name some topic."""
        return f"persistent://{self.namespace()}/topic-{self.dice.randrange(1000)}"

    @asynccontextmanager
    async def raw(self, port: int, small: bool = False) -> AsyncIterator[AsyncClient]:
        """Open a connection on which nothing was sent."""
        client = await AsyncClient.open(port, SMALL_BUFFER if small else None)
        try:
            yield client
        finally:
            client.close()

    @asynccontextmanager
    async def client(self, broker: str = "", *, small: bool = False) -> AsyncIterator[AsyncClient]:
        """Open a connection in lookup mode, or in direct mode to a broker."""
        async with self.raw(self.port, small) as client:
            await client.connect(f"127.0.0.1:{self.brokers[broker]}" if broker else None)
            yield client

    @asynccontextmanager
    async def secured(self) -> AsyncIterator[AsyncClient]:
        """Open a connection in lookup mode over TLS."""
        async with self.raw(self.tls_port) as plain:
            client = await TlsClient(plain.sock, self.trusting).shake()
            await client.connect()
            yield client


Action = Callable[[Place], Awaitable[None]]


async def lookups(at: Place) -> None:
    """Look some topics up, and their partitions' home."""
    async with at.client() as client:
        for _ in range(at.dice.randint(1, 5)):
            answer = await client.lookup(at.topic())
            assert answer.brokerServiceUrl, answer
        await client.ping()


async def lists(at: Place) -> None:
    """Ask for lists and read them at once."""
    async with at.client() as client:
        for _ in range(at.dice.randint(1, 3)):
            await listed(at, client)


async def crowd(at: Place) -> None:
    """Ask for one list from several clients at once; some leave before it comes."""
    namespace = at.namespace()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(at.client()) for _ in range(6)]
        for client in clients:
            await client.ask_topics(namespace)
        for client in clients[::3]:
            client.reset()
        for client in (each for number, each in enumerate(clients) if number % 3):
            taken_or_refused(at, await client.answer(pong=True))


async def slow_lists(at: Place) -> None:
    """Ask for two lists and read them slowly, through a small buffer; one of four never reads to the end."""
    async with at.client(small=True) as client:
        for _ in range(2):
            await client.ask_topics(at.namespace())
        size = int.from_bytes(await client.receive(4), "big")
        patience = size if at.dice.random() < 0.75 else size // 3
        while patience > 0:
            patience -= len(await client.receive(min(8192, patience)))
            await at.pause(0.1)
        if at.dice.random() < 0.5:
            client.reset()


async def watches(at: Place) -> None:
    """Watch topics through a relay, see some updates or none, and leave with or without a word."""
    async with at.client("commands") as client:
        for number in range(1, 3):
            wanted = {"request_id": client.next_id(), "namespace": at.namespace(), "topics_pattern": "persistent://.*"}
            await client.send_command(command("WATCH_TOPIC_LIST", watcher_id=number, **wanted))
            answer = await client.answer(pong=True)
            while answer.type == pb.BaseCommand.WATCH_TOPIC_UPDATE:
                answer = await client.answer(pong=True)
            assert answer.type == pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS, answer.type
        await at.pause(2)


async def echoes(at: Place) -> None:
    """Send bytes through a relay and read the same bytes again."""
    async with at.client("echo") as client:
        data = at.dice.randbytes(ECHOED_BYTES)
        for _ in range(at.dice.randint(1, 4)):
            sending = asyncio.gather(client.send(data), client.receive(len(data)))
            assert (await sending)[1] == data
        if at.dice.random() < 0.5:
            client.fin()
            await client.rest()


async def floods(at: Place) -> None:
    """Take some messages slowly, then stop, then vanish."""
    async with at.client("flood", small=True) as client:
        for _ in range(6):
            await client.receive(FLOODED_BYTES // 6)
            await at.pause(0.1)
        await at.pause(0.7)
        client.reset()


async def secure(at: Place) -> None:
    """Do over TLS what others do without."""
    async with at.secured() as client:
        assert (await client.lookup(at.topic())).brokerServiceUrl
        await listed(at, client)


async def half_handshakes(at: Place) -> None:
    """Begin a TLS handshake and go, or speak no TLS at all."""
    async with at.raw(at.tls_port) as client:
        tls = TlsClient(client.sock, at.trusting)
        with suppress(ssl.SSLWantReadError):
            tls.sealer.tls.do_handshake()
        hello = tls.sealer.outgoing.read()
        if at.dice.random() < 0.5:
            await client.send(hello[: at.dice.randint(1, len(hello))])
            await at.pause(0.2)
            client.reset()
        else:
            await client.send(b"CONNECT proxy:1 HTTP/1.1\r\n\r\n")
            await client.rest()


async def garbage(at: Place) -> None:
    """Send what is no frame, before or after a handshake; the proxy must end the connection."""
    async with at.raw(at.port) as client:
        if at.dice.random() < 0.5:
            await client.connect()
        wrong = (
            b"\xff" * 64,
            b"GET / HTTP/1.1\r\n\r\n",
            (40).to_bytes(4, "big") + (36).to_bytes(4, "big") + b"\x08\x17" + b"\xff" * 34,
            b"\0" * 16,
        )
        with suppress(ConnectionError):
            await client.send(at.dice.choice(wrong))
        await client.rest()


async def half_frames(at: Place) -> None:
    """Leave in the middle of a frame."""
    async with at.client() as client:
        data = new_schema_frame(1, at.topic(), SCHEMA_BYTES)
        await client.send(data[: at.dice.randrange(4, len(data))])
        await at.pause(0.3)
        if at.dice.random() < 0.5:
            client.reset()


async def schemas(at: Place) -> None:
    """Send a schema in a large frame."""
    async with at.client() as client:
        await client.send(new_schema_frame(client.next_id(), "persistent://demo/ns-00/schemas", SCHEMA_BYTES))
        answer = await client.answer(pong=True)
        assert answer.type == pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, answer.type


async def pages(at: Place) -> None:
    """Read pages of the web port, and send it what is no HTTP."""
    requests = (
        b"GET /metrics HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n",
        b"GET /proxy-stats/connections HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n",
        b"GET /%2e%2e/x?" + b"a" * 300 + b" HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n",
        b"BREW /pot HTCPCP/1.0\r\n\r\n\r\n",
    )
    async with at.raw(at.web_port) as client:
        await client.send(at.dice.choice(requests))
        assert await client.rest()


async def forwarded(at: Place) -> None:
    """Ask for what a broker's web service has, or upload to it; one of three uploads breaks off."""
    async with at.raw(at.web_port) as client:
        if at.dice.random() < 0.5:
            await client.send(f"GET {ADMIN} HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n".encode())
        else:
            head = f"PUT {ADMIN} HTTP/1.1\r\nHost: p\r\nConnection: close\r\nContent-Length: {UPLOADED_BYTES}\r\n\r\n"
            breaks_off = at.dice.random() < 0.33
            await client.send(head.encode() + bytes(UPLOADED_BYTES // (2 if breaks_off else 1)))
            if breaks_off:
                await at.pause(0.2)
                client.reset()
                return
        answer = await client.rest()
        assert answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 503 ")), answer[:60]


async def tunnels(at: Place) -> None:
    """Send messages over a WebSocket and read the same again; leave with or without a word."""
    url = f"http://127.0.0.1:{at.web_port}{SOCKET}"
    async with aiohttp.ClientSession() as session, session.ws_connect(url, max_msg_size=0) as web_socket:
        for _ in range(at.dice.randint(1, 4)):
            data = at.dice.randbytes(at.dice.choice((10, 1000, ECHOED_BYTES)))
            await web_socket.send_bytes(data)
            message = await web_socket.receive()
            assert message.data == data, message.type
            await at.pause(0.1)
        if at.dice.random() < 0.5:
            # The end without a word of WebSockets: transports of uvloop show no socket that can be shut down.
            with socket.socket(fileno=os.dup(web_socket.get_extra_info("socket").fileno())) as own:
                own.shutdown(socket.SHUT_RDWR)


async def residents(at: Place) -> None:
    """Stay for a while: a client of lookup mode, of a relay or of TLS that pings and lists now and then."""
    async with at.dice.choice((at.client(), at.client("commands"), at.secured())) as client:
        for _ in range(at.dice.randint(1, 12)):
            await at.pause()
            if at.dice.random() < 0.3:
                await listed(at, client)
            else:
                await client.ping()


async def listed(at: Place, client: AsyncClient) -> None:
    """Ask for a list, and see that it is whole or was refused."""
    await client.ask_topics(at.namespace())
    taken_or_refused(at, await client.answer(pong=True))


def taken_or_refused(at: Place, answer: pb.BaseCommand) -> None:
    """Judge the answer to a question for a list: whole, or a refusal that a client repeats."""
    if answer.type == pb.BaseCommand.ERROR:
        assert answer.error.error == pb.TooManyRequests, answer
        return
    names = answer.getTopicsOfNamespaceResponse.topics
    assert len(names) == at.topics, f"got {len(names)} topics, expected {at.topics}"


# How often each action comes, of a hundred.
WEIGHTS: Final[Mapping[Action, int]] = {
    lookups: 15,
    lists: 12,
    crowd: 7,
    slow_lists: 8,
    watches: 7,
    echoes: 7,
    floods: 5,
    secure: 8,
    half_handshakes: 5,
    garbage: 6,
    half_frames: 4,
    schemas: 2,
    pages: 4,
    forwarded: 3,
    tunnels: 3,
    residents: 4,
}
ENDS: Final = (AssertionError, Closed, OSError, TimeoutError, ssl.SSLError, aiohttp.ClientError)
