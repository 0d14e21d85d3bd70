"""What brokers are told of who asks them, and what becomes of a connection when they want to hear it again."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from protocol.commands import error, lookup_connect, request_id_of
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.identity import AuthData, Principal
from proxy.brokers.connect_frames import ConnectFrames
from proxy.brokers.endpoint import MOST_CHALLENGES
from proxy.core.tasks import TaskScope
from tests.support.auth.credentials import NOON, Court, challenge, challenged, court, presenting, refused, response
from tests.support.brokers.raw_broker import CONNECTED, RawBroker, raw_broker
from tests.support.clients.async_client import AsyncClient, connect_frame, eventually
from tests.support.patience import patient_millis
from tests.support.proxies.proxy_under_test import TOPIC, Stage, staged

NONE_LEFT = 2**64 - 1
FORWARDING: dict[str, Any] = {"forwardAuthorizationCredentials": "true"}
NOT_FORWARDING: dict[str, Any] = {"forwardAuthorizationCredentials": "false"}
PLUGIN = "brokerClientAuthenticationPlugin"
PARAMETERS = "brokerClientAuthenticationParameters"
OWN: dict[str, Any] = {PLUGIN: "token", PARAMETERS: "token:mine"}
ANY_TARGET: dict[str, Any] = {"brokerProxyCredentialsToAnyTarget": "true"}
ENDLESS = "the broker goes on asking for credentials"


@dataclass
class Strict:
    """A broker that says what a test tells it to, answers lookups, and keeps all it hears of credentials."""

    first_challenges: int = 0
    refusal: tuple[int, str] | None = None
    connects: list[pb.CommandConnect] = field(default_factory=list)
    responses: list[pb.CommandAuthResponse] = field(default_factory=list)
    lookups: list[AsyncClient] = field(default_factory=list)
    peers: list[AsyncClient] = field(default_factory=list)

    async def serve(self, peer: AsyncClient) -> None:
        self.connects.append((await peer.command()).connect)
        for number in range(self.first_challenges):
            await peer.send(challenge(b"what about %d" % number))
            self.responses.append((await peer.command()).authResponse)
        if self.refusal is not None:
            await peer.send(error(NONE_LEFT, *self.refusal))
            return
        self.peers.append(peer)
        await peer.send(CONNECTED)
        while True:
            command = await peer.answer(pong=True)
            if command.type == pb.BaseCommand.AUTH_RESPONSE:
                self.responses.append(command.authResponse)
            elif command.type == pb.BaseCommand.LOOKUP:
                self.lookups.append(peer)
                await peer.send(lookup_connect(request_id_of(command), "pulsar://127.0.0.1:6650"))
            else:
                await peer.send(error(request_id_of(command), ServerError.UnknownError, "what?"))

    def heard(self) -> list[tuple[str, bytes]]:
        """Give what it was answered."""
        return [(found.response.auth_method_name, found.response.auth_data) for found in self.responses]


@asynccontextmanager
async def strict(broker: Strict, **keys: Any) -> AsyncIterator[Court]:
    async with raw_broker(broker.serve) as listening, court(listening.port, **keys) as held:
        yield held


@asynccontextmanager
async def plain(broker: Strict, **keys: Any) -> AsyncIterator[tuple[Stage, RawBroker]]:
    """Run a proxy that does not authenticate its clients."""
    async with raw_broker(broker.serve) as listening, staged(broker_port=listening.port, **keys) as stage:
        yield stage, listening


# --- the proxy's own credentials ---------------------------------------------------------------------


async def test_a_token_file_is_read_for_each_connection(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    broker = Strict()
    async with plain(broker, **{PLUGIN: "token", PARAMETERS: f"file://{token}"}) as (stage, listening):
        client = await stage.connected()
        await client.lookup(TOPIC)
        token.write_text("second\n")
        relayed = await stage.client()
        await relayed.connect(target=f"127.0.0.1:{listening.port}")
        assert [seen.auth_data for seen in broker.connects] == [b"first", b"second"]
        # Without authentication the proxy speaks for nobody.
        assert not any(seen.HasField("original_principal") for seen in broker.connects)
        assert [seen.HasField("proxy_version") for seen in broker.connects] == [False, True]


async def test_without_its_token_the_proxy_says_which_key_is_at_fault(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    async with plain(Strict(), **{PLUGIN: "token", PARAMETERS: f"file://{missing}"}) as (stage, listening):
        client = await stage.connected()
        answer = await client.lookup(TOPIC)
        assert answer.error == ServerError.ServiceNotReady
        assert PARAMETERS in answer.message
        relayed = await stage.client()
        await relayed.send(connect_frame(f"127.0.0.1:{listening.port}"))
        assert (await refused(relayed)).error == ServerError.ServiceNotReady
        assert stage.caused("no_broker_credentials") == 1
        missing.write_text("there")
        assert (await client.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect


@pytest.mark.parametrize("challenges", [1, MOST_CHALLENGES])
async def test_a_challenge_before_connected_is_answered_with_the_proxy_s_own(challenges: int) -> None:
    broker = Strict(first_challenges=challenges)
    async with strict(broker, **OWN, **FORWARDING) as held:
        client = await held.client("alice")
        await client.lookup(TOPIC)
        assert broker.heard() == [("token", b"mine")] * challenges
        await held.client("bob", target=f"127.0.0.1:{held.stage.proxy.config.broker_hosts[0][1]}")
        assert broker.heard() == [("token", b"mine")] * challenges * 2


async def test_a_proxy_without_credentials_says_so_to_who_is_challenged() -> None:
    async with plain(Strict(first_challenges=1)) as (stage, listening):
        client = await stage.connected()
        answer = await client.lookup(TOPIC)
        assert answer.error == ServerError.AuthenticationError
        relayed = await stage.client()
        await relayed.send(connect_frame(f"127.0.0.1:{listening.port}"))
        error = await refused(relayed)
        assert error.error == ServerError.AuthenticationError
        assert error.message == answer.message == "the broker asks for credentials, the proxy has none"


@pytest.mark.parametrize("code", [ServerError.AuthenticationError, ServerError.AuthorizationError])
async def test_a_refusal_of_the_proxy_reaches_the_client_as_it_is(code: ServerError) -> None:
    async with strict(Strict(refusal=(code, "the broker says so")), **OWN) as held:
        client = await held.client("alice")
        answer = await client.lookup(TOPIC)
        assert (answer.error, answer.message) == (code, "the broker says so")
        relayed = await held.stage.client()
        await relayed.send(presenting("alice", target=f"127.0.0.1:{held.stage.proxy.config.broker_hosts[0][1]}"))
        assert (await refused(relayed)).error == code


async def test_a_broker_that_never_ends_its_questions_is_left() -> None:
    broker = Strict(first_challenges=10**9)
    async with strict(broker, **OWN) as held:
        client = await held.client("alice")
        answer = await client.lookup(TOPIC)
        assert (answer.error, answer.message) == (ServerError.AuthenticationError, ENDLESS)
        assert broker.heard() == [("token", b"mine")] * MOST_CHALLENGES
        relayed = await held.stage.client()
        await relayed.send(presenting("alice", target=f"127.0.0.1:{held.stage.proxy.config.broker_hosts[0][1]}"))
        error = await refused(relayed)
        assert (error.error, error.message) == (ServerError.AuthenticationError, ENDLESS)
        assert held.stage.caused("broker_refused") >= 1
        assert broker.heard() == [("token", b"mine")] * MOST_CHALLENGES * 2


@pytest.mark.threat("auth-challenge-flood")
async def test_a_listener_that_sends_questions_without_end_has_few_of_them_answered() -> None:
    async def ask(peer: AsyncClient) -> None:
        connect = await peer.command()
        assert connect.type == pb.BaseCommand.CONNECT
        await peer.send(challenge() * 500)
        for _ in range(MOST_CHALLENGES):
            answers.append((await peer.command()).type)
        await peer.rest()

    answers: list[int] = []
    async with raw_broker(ask) as listening, staged(**OWN, **ANY_TARGET) as stage:
        client = await stage.client()
        await client.send(connect_frame(f"127.0.0.1:{listening.port}"))
        assert (await refused(client)).error == ServerError.AuthenticationError
        await stage.until(lambda: listening.peers[0].sock.fileno() == -1, "the listener's side closed")
        assert answers == [pb.BaseCommand.AUTH_RESPONSE] * MOST_CHALLENGES


# --- a probe that is challenged -----------------------------------------------------------------------


@asynccontextmanager
async def probed(broker: Strict, **keys: Any) -> AsyncIterator[Mapping[str, object]]:
    """Run a proxy that no client asks, and yield its row of the broker after the probe."""
    async with plain(broker, brokerIdleProbeIntervalMillis=3_600_000, **keys) as (stage, _):
        await stage.until(lambda: any(stage.proxy.counters.brokers.broker_probes.values()), "a probe")
        yield stage.proxy.broker_side.brokers.shown()[0]


@pytest.mark.parametrize("challenges", [1, MOST_CHALLENGES])
async def test_a_broker_that_challenges_a_probe_is_up_when_it_has_the_proxy_s_own(challenges: int) -> None:
    broker = Strict(first_challenges=challenges)
    async with probed(broker, **OWN) as row:
        assert (row["state"], row["error"]) == ("up", "")
        assert broker.heard() == [("token", b"mine")] * challenges


# What clients send cannot help here, because it was in CONNECT: a broker asks for nothing but the proxy's own.
@pytest.mark.parametrize("forwards", ["true", "false"])
@pytest.mark.parametrize(
    ("own", "challenges", "reason"),
    [({}, 1, "the broker asks for credentials, the proxy has none"), (OWN, 10**9, "goes on asking for credentials")],
)
async def test_a_broker_whose_challenge_cannot_be_met_refuses_the_proxy(
    own: dict[str, Any], challenges: int, reason: str, forwards: str
) -> None:
    async with probed(Strict(challenges), forwardAuthorizationCredentials=forwards, **own) as row:
        assert row["state"] == "refusing"
        assert reason in str(row["error"])


async def test_own_credentials_that_come_too_late_for_a_challenge_are_no_fault_of_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(_: ConnectFrames) -> bytes:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    monkeypatch.setattr(ConnectFrames, "answer", never)
    async with probed(Strict(1), brokerProxyConnectTimeoutMs=patient_millis(500), **OWN) as row:
        assert row["state"] == "refusing"
        assert "the proxy's own credentials did not come in time" in str(row["error"])


async def test_a_broker_that_is_silent_after_the_answer_to_its_challenge_is_down() -> None:
    async def silent(peer: AsyncClient) -> None:
        await peer.command()
        await peer.send(challenge(b"who are you"))
        with suppress(AssertionError, ConnectionError, asyncio.IncompleteReadError):
            await peer.command()
            await peer.command()

    limit = {"brokerProxyConnectTimeoutMs": patient_millis(500)}
    keys: dict[str, Any] = {**OWN, **limit, "brokerIdleProbeIntervalMillis": 3_600_000}
    async with raw_broker(silent) as listening, staged(broker_port=listening.port, **keys) as stage:
        await stage.until(lambda: any(stage.proxy.counters.brokers.broker_probes.values()), "a probe")
        row = stage.proxy.broker_side.brokers.shown()[0]
        assert row["state"] in ("down", "trial")
        assert "did not answer CONNECT within" in str(row["error"])


# --- credentials that a broker wants to be renewed ------------------------------------------------------


async def test_a_broker_gets_the_proxy_s_own_fresh_ones_when_nothing_is_forwarded(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    broker = Strict()
    async with strict(broker, **{PLUGIN: "token", PARAMETERS: f"file://{token}"}, **NOT_FORWARDING) as held:
        client = await held.client("alice")
        await client.lookup(TOPIC)
        token.write_text("second")
        await broker.peers[0].send(challenge())
        await held.stage.until(lambda: broker.heard() == [("token", b"second")], "an answer")
        await client.lookup(TOPIC)
        assert len(broker.connects) == 1


async def test_a_broker_gets_what_the_client_renews() -> None:
    broker = Strict()
    async with strict(broker, **OWN, **FORWARDING) as held:
        client = await held.client("alice/1")
        await client.lookup(TOPIC)
        await broker.peers[0].send(challenge())
        await challenged(client)
        assert broker.responses == []
        await client.send(response("alice/2"))
        await held.stage.until(lambda: broker.heard() == [("token", b"alice/2")], "an answer")
        # The connection is the client's still, under its newer credentials, and nobody's with the older ones.
        await client.lookup(TOPIC)
        assert len(broker.connects) == 1
        await (await held.client("alice/1")).lookup(TOPIC)
        assert [seen.original_auth_data for seen in broker.connects] == ["alice/1", "alice/1"]
        assert broker.lookups[0] is broker.lookups[1] is not broker.lookups[2]
        await (await held.client("alice/2")).lookup(TOPIC)
        assert broker.lookups[3] is broker.lookups[0]


async def test_a_question_other_than_for_newer_ones_is_about_the_proxy_and_reaches_no_client() -> None:
    broker = Strict()
    async with strict(broker, **OWN, **FORWARDING) as held:
        client = await held.client("alice/1")
        await client.lookup(TOPIC)
        await broker.peers[0].send(challenge(b"what about the first"))
        await held.stage.until(lambda: broker.heard() == [("token", b"mine")], "an answer of the proxy's own")
        # Nothing has come to the client before this, and its connection is its own still.
        await client.ping()
        await client.lookup(TOPIC)
        assert [seen.original_auth_data for seen in broker.connects] == ["alice/1"]


async def test_one_client_answers_for_all_connections_that_wait() -> None:
    broker = Strict()
    async with strict(broker, **OWN, **FORWARDING) as held:
        clients = [await held.client("alice/1") for _ in range(2)]
        await clients[0].lookup(TOPIC)
        schema = pb.CommandGetSchema(request_id=9, topic=TOPIC)
        await clients[0].send_command(pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA, getSchema=schema))
        assert (await clients[0].error(9)).message == "what?"
        assert len(broker.peers) == 2
        for peer in broker.peers:
            await peer.send(challenge())
        asked = await one_of(clients)
        pooled = held.stage.proxy.broker_side.pool._keys
        await held.stage.until(lambda: all(connection._challenged for connection in pooled), "two questions")
        await asked.send(response("alice/2"))
        await held.stage.until(lambda: broker.heard() == [("token", b"alice/2")] * 2, "two answers")
        (other,) = set(clients) - {asked}
        await other.ping()


async def test_when_the_one_who_was_asked_leaves_the_next_is_asked() -> None:
    broker = Strict()
    async with strict(broker, **OWN, **FORWARDING) as held:
        clients = [await held.client("alice/1") for _ in range(3)]
        await clients[0].lookup(TOPIC)
        await broker.peers[0].send(challenge())
        for _ in range(2):
            asked = await one_of(clients)
            asked.reset()
            clients.remove(asked)
            held.stage.clients.remove(asked)
        await challenged(clients[0])
        await clients[0].send(response("alice/2"))
        await held.stage.until(lambda: broker.heard() == [("token", b"alice/2")], "an answer")


async def one_of(clients: list[AsyncClient]) -> AsyncClient:
    """Wait until one of them is asked for newer credentials."""
    found: list[AsyncClient] = []

    async def note(client: AsyncClient) -> None:
        await readable(client)
        found.append(client)

    scope = TaskScope(lambda error: None)
    for client in clients:
        scope.start(note(client))
    await eventually(lambda: found, "a client that is asked")
    scope.cancel()
    await scope.emptied()
    (asked,) = found
    await challenged(asked)
    return asked


async def readable(client: AsyncClient) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def arrived() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(client.sock, arrived)
    try:
        await ready
    finally:
        loop.remove_reader(client.sock)


async def test_a_connection_that_nobody_renews_is_closed_and_not_used_again() -> None:
    broker = Strict()
    async with strict(broker, **OWN, **FORWARDING) as held:
        client = await held.client("alice/1")
        await client.lookup(TOPIC)
        client.close()
        await held.stage.until(lambda: not len(held.stage.proxy.sessions), "the client gone")
        await broker.peers[0].send(challenge())
        await held.stage.until(lambda: held.stage.caused("credentials_not_renewed") == 1, "a cause")
        assert broker.responses == []
        await (await held.client("alice/1")).lookup(TOPIC)
        assert len(broker.connects) == 2


async def test_a_client_that_cannot_renew_is_not_asked() -> None:
    broker = Strict()
    async with strict(broker, **OWN, **FORWARDING) as held:
        client = await held.client("alice", refresh=False)
        await client.lookup(TOPIC)
        await broker.peers[0].send(challenge())
        await held.stage.until(lambda: held.stage.caused("credentials_not_renewed") == 1, "a cause")
        await client.ping()
        await client.lookup(TOPIC)


async def test_a_client_that_is_asked_and_says_nothing_costs_the_connection_only() -> None:
    broker = Strict()
    async with strict(broker, **OWN, **FORWARDING, authenticationRefreshCheckSeconds=1) as held:
        client = await held.client("alice")
        await client.lookup(TOPIC)
        await broker.peers[0].send(challenge())
        await challenged(client)
        await held.stage.until(lambda: held.stage.caused("credentials_not_renewed") >= 1, "a cause")
        assert broker.responses == []


async def test_somebody_else_s_credentials_reach_no_broker() -> None:
    broker = Strict()
    async with strict(broker, **OWN, **FORWARDING) as held:
        client = await held.client("alice")
        await client.lookup(TOPIC)
        await broker.peers[0].send(challenge())
        await challenged(client)
        await client.send(response("bob"))
        assert (await refused(client)).error == ServerError.AuthenticationError
        await held.stage.until(lambda: held.stage.caused("credentials_not_renewed") == 1, "a cause")
        assert broker.responses == []


async def test_a_broker_that_asks_in_a_storm_is_answered_one_by_one() -> None:
    broker = Strict()
    async with strict(broker, **OWN, **FORWARDING) as held:
        client = await held.client("alice/1")
        await client.lookup(TOPIC)
        await broker.peers[0].send(challenge() * 200)
        await challenged(client)
        await client.ping()
        await client.send(response("alice/2"))
        await held.stage.until(lambda: broker.heard() == [("token", b"alice/2")], "one answer")


async def test_a_client_that_was_asked_for_a_broker_is_not_asked_again_by_the_clock() -> None:
    broker = Strict()
    async with strict(broker, **OWN, **FORWARDING) as held:
        client = await held.client(f"alice until {NOON}")
        await client.lookup(TOPIC)
        await broker.peers[0].send(challenge())
        await challenged(client)
        held.look()
        await client.ping()
        await client.send(response("alice/2"))
        session = held.stage.session_of(client)
        newer = Principal("alice", AuthData("token", b"alice/2"))
        await held.stage.until(lambda: session.principal == newer, "the newer credentials")
