"""Flows of direct mode: the handshake, the relay, a watcher's list, TLS on both sides, and challenges."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb
from tests.faults.flows.flow import BROKER_SIDE, CLIENT_SIDE, SIDES, Flow, Refused
from tests.faults.flows.requests import LISTED, answer_to
from tests.support.auth.credentials import NOON, challenge, challenged, response
from tests.support.auth.tls import TlsClient, client_context, tls_broker
from tests.support.brokers.embedded.session import message_frame
from tests.support.brokers.raw_broker import CONNECTED, raw_broker
from tests.support.clients.async_client import AsyncClient, connect_frame
from tests.support.clients.commands import command
from tests.support.faults.proxy import FaultProxy
from tests.support.patience import patient

if TYPE_CHECKING:
    from tests.faults.scene import Scene

PAYLOAD_BYTES = 30_000
REFRESH_SECONDS = 2
OWN_CREDENTIALS = {
    "brokerClientAuthenticationPlugin": "token",
    "brokerClientAuthenticationParameters": "token:mine",
}


async def hands_shaken(client: AsyncClient) -> None:
    """Read CONNECTED; an ERROR is a refusal."""
    answer = await client.answer(pong=True)
    if answer.type == pb.BaseCommand.ERROR:
        raise Refused(answer.error.message)
    assert answer.type == pb.BaseCommand.CONNECTED, answer


async def echoed(client: AsyncClient, payload_bytes: int = PAYLOAD_BYTES) -> None:
    """Send a frame, and read the same again."""
    message = message_frame(payload_bytes)
    await client.send(message)
    assert await client.receive(len(message)) == message


class Relayed(Flow):
    """A flow of a client in direct mode, to a broker behind `own_way`."""

    own = True
    client: AsyncClient

    def target(self, at: "Scene") -> str:
        return f"127.0.0.1:{at.own_way.port}"

    async def more(self, at: "Scene") -> None:
        client = await at.connected(target=self.target(at))
        client.close()


class Handshake(Relayed):
    """CONNECT with a target: the broker is dialled, and CONNECTED comes from there."""

    fresh = frozenset(SIDES)

    async def ask(self, at: "Scene") -> None:
        self.client = await at.client()
        await self.client.send(at.hello(self.target(at)))
        await hands_shaken(self.client)


class Echo(Relayed):
    """A frame through the relay and back."""

    @asynccontextmanager
    async def server(self) -> AsyncIterator[int]:
        from tests.faults.scene import echo

        async with raw_broker(echo) as broker:
            yield broker.port

    async def prepare(self, at: "Scene") -> None:
        self.client = await at.connected(target=self.target(at))

    async def ask(self, at: "Scene") -> None:
        await echoed(self.client)


class Watch(Relayed):
    """A topic list for a watcher, which passes under a direct permit."""

    async def prepare(self, at: "Scene") -> None:
        self.client = await at.connected(target=self.target(at))

    async def ask(self, at: "Scene") -> None:
        wanted = {"request_id": 1, "namespace": LISTED, "topics_pattern": f"persistent://{LISTED}/.*"}
        await self.client.send_command(command("WATCH_TOPIC_LIST", watcher_id=1, **wanted))
        answer = await answer_to(self.client, 1)
        assert list(answer.watchTopicListSuccess.topic) == list(at.stage.broker.answers.store.names(LISTED))


class TlsHandshake(Handshake):
    """The same handshake, with TLS towards the client and towards the broker."""

    tls = True

    def port(self, at: "Scene") -> int:
        found: int = at.stage.proxy.tls_port
        return found

    async def ask(self, at: "Scene") -> None:
        plain = await at.client()
        self.client = client = TlsClient(plain.sock, client_context())
        await client.shake()
        await client.send(connect_frame(self.target(at)))
        await hands_shaken(client)

    async def more(self, at: "Scene") -> None:
        pass


class EchoOverTls(TlsHandshake):
    """A frame through the relay and back, with TLS towards the client and towards the broker."""

    fresh = frozenset()

    @asynccontextmanager
    async def server(self) -> AsyncIterator[int]:
        from tests.faults.scene import echo_over_tls

        async with tls_broker(echo_over_tls) as broker:
            yield broker.port

    async def prepare(self, at: "Scene") -> None:
        await super().ask(at)

    async def ask(self, at: "Scene") -> None:
        # Half of it is more than a record of TLS: of a frame that is cut a part has been delivered.
        await echoed(self.client, 2 * PAYLOAD_BYTES)


class Challenge(Relayed):
    """An AUTH_CHALLENGE and its response: of the proxy to a client, or of a broker to the proxy."""

    authenticated = True
    fresh = frozenset({BROKER_SIDE})

    def keys(self, own_way: FaultProxy) -> dict[str, Any]:
        return {
            **OWN_CREDENTIALS,
            # Only brokers that are known get the proxy's own credentials.
            "brokerProxyAllowedIPAddresses": "127.0.0.1/32",
            # Only credentials that are forwarded are asked for again.
            "forwardAuthorizationCredentials": "true",
            # Looks come after as many turns of the clock; an answer has as many seconds.
            "authenticationRefreshCheckSeconds": round(patient(REFRESH_SECONDS)),
        }

    @asynccontextmanager
    async def server(self) -> AsyncIterator[int]:
        async with raw_broker(challenging) as broker:
            yield broker.port

    async def prepare(self, at: "Scene") -> None:
        if self.side == CLIENT_SIDE:
            assert at.court is not None
            at.court.now = NOON
            self.client = await at.client()
            await self.client.send(at.hello(who=f"alice until {NOON + 10}"))
            await hands_shaken(self.client)

    async def ask(self, at: "Scene") -> None:
        assert at.court is not None
        if self.side == BROKER_SIDE:
            self.client = await at.client()
            await self.client.send(at.hello(self.target(at)))
            await hands_shaken(self.client)
            return
        at.court.now = NOON + 20
        await challenged(self.client)
        await self.client.send(response(f"alice until {NOON + 10_000}"))
        # The answer to the next request is that the response was heard.
        await self.client.ping()


async def challenging(peer: AsyncClient) -> None:
    """Challenge a client once before CONNECTED."""
    assert (await peer.command()).type == CommandType.CONNECT
    await peer.send(challenge(b"who are you"))
    assert (await peer.command()).type == CommandType.AUTH_RESPONSE
    await peer.send(CONNECTED)
    await peer.rest()
