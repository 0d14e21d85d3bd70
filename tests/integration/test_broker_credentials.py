"""What brokers are told of who asks them, and what becomes of a connection when they want to hear it again."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.own.oauth2 import MAX_ANSWER_BYTES
from proxy.brokers.endpoint import MOST_CHALLENGES
from tests.support.auth.credentials import (
    Court,
    challenge,
    challenged,
    court,
    presenting,
    refused,
    response,
    turned_away,
)
from tests.support.auth.tls import PemFiles, server_context
from tests.support.brokers.judging_broker import TalkingBroker
from tests.support.brokers.raw_broker import RawBroker, raw_broker
from tests.support.clients.async_client import AsyncClient, connect_frame, schema_frame
from tests.support.proxies.counted import counted_by
from tests.support.proxies.proxy_under_test import TOPIC, Stage, staged
from tests.support.web.fake_web_broker import fake_web_broker, fine

FORWARDING: dict[str, Any] = {"forwardAuthorizationCredentials": "true"}
NOT_FORWARDING: dict[str, Any] = {"forwardAuthorizationCredentials": "false"}
PLUGIN = "brokerClientAuthenticationPlugin"
PARAMETERS = "brokerClientAuthenticationParameters"
OWN: dict[str, Any] = {PLUGIN: "token", PARAMETERS: "token:mine"}
ENDLESS = "the broker goes on asking for credentials"


@asynccontextmanager
async def strict(broker: TalkingBroker, **keys: Any) -> AsyncIterator[Court]:
    async with raw_broker(broker.serve) as listening, court(listening.port, **keys) as held:
        yield held


@asynccontextmanager
async def plain(broker: TalkingBroker, **keys: Any) -> AsyncIterator[tuple[Stage, RawBroker]]:
    """Run a proxy that does not authenticate its clients."""
    async with raw_broker(broker.serve) as listening, staged(broker_port=listening.port, **keys) as stage:
        yield stage, listening


# --- the proxy's own credentials ---------------------------------------------------------------------


async def test_without_its_token_the_proxy_says_which_key_is_at_fault(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    async with plain(TalkingBroker(), **{PLUGIN: "token", PARAMETERS: f"file://{missing}"}) as (stage, listening):
        client = await stage.connected()
        answer = await client.lookup(TOPIC)
        assert answer.error == ServerError.ServiceNotReady
        assert PARAMETERS in answer.message
        relayed = await turned_away(stage, connect_frame(f"127.0.0.1:{listening.port}"))
        assert relayed.error == ServerError.ServiceNotReady
        assert stage.caused("no_broker_credentials") == 1
        missing.write_text("there")
        assert (await client.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect


# Each would be a token if it were believed.
TOKEN = {"access_token": "a.b.c", "expires_in": 300}
RUDE: dict[str, Callable[[], web.Response]] = {
    "no printable word": lambda: web.json_response({**TOKEN, "access_token": "a.b\r\nHost: c"}),
    "of any size": lambda: web.json_response({**TOKEN, "more": "x" * MAX_ANSWER_BYTES}),
    "packed": lambda: web.Response(
        body=gzip.compress(json.dumps(TOKEN).encode()), headers={"Content-Encoding": "gzip"}
    ),
    "elsewhere": lambda: web.Response(status=307, headers={"Location": "/second"}),
}


@pytest.mark.threat("rude-oauth2-issuer")
@pytest.mark.parametrize("rude", RUDE)
async def test_what_a_rude_issuer_gives_reaches_no_broker(rude: str, tmp_path: Path) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response({"token_endpoint": f"{issuer.url}/token"})
        return RUDE[rude]() if request.path == "/token" else web.json_response(TOKEN)

    (tmp_path / "key").write_text(json.dumps({"client_id": "proxy", "client_secret": "secret"}))
    broker = TalkingBroker()
    async with fake_web_broker(answer) as issuer:
        parameters = {"issuerUrl": issuer.url, "privateKey": f"file://{tmp_path / 'key'}", "audience": "a"}
        async with plain(broker, **{PLUGIN: "oauth2", PARAMETERS: json.dumps(parameters)}) as (stage, _):
            client = await stage.connected()
            assert (await client.lookup(TOPIC)).error == ServerError.ServiceNotReady
            assert broker.tokens == []


@pytest.mark.threat("rude-oauth2-issuer")
async def test_an_issuer_with_tls_cannot_have_the_secret_sent_without(tmp_path: Path) -> None:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"token_endpoint": f"{listener.url}/token"})

    (tmp_path / "key").write_text(json.dumps({"client_id": "proxy", "client_secret": "secret"}))
    trust = str(PemFiles.write(tmp_path).trust)
    async with fake_web_broker(fine) as listener, fake_web_broker(answer, tls=server_context()) as issuer:
        parameters = {
            "issuerUrl": issuer.url, "privateKey": f"file://{tmp_path / 'key'}", "audience": "a",
            "trustCertsFilePath": trust,
        }  # fmt: skip
        async with plain(TalkingBroker(), **{PLUGIN: "oauth2", PARAMETERS: json.dumps(parameters)}) as (stage, _):
            client = await stage.connected()
            assert (await client.lookup(TOPIC)).error == ServerError.ServiceNotReady
            assert [asked.path for asked in issuer.asked] == ["/.well-known/openid-configuration"]
            assert listener.asked == []


@pytest.mark.parametrize("challenges", [1, MOST_CHALLENGES])
async def test_a_challenge_before_connected_is_answered_with_the_proxy_s_own(challenges: int) -> None:
    broker = TalkingBroker(challenges=challenges)
    async with strict(broker, **OWN, **FORWARDING) as held:
        client = await held.client("alice")
        await client.lookup(TOPIC)
        assert broker.heard() == [("token", b"mine")] * challenges
        await held.client("bob", target=held.target)
        assert broker.heard() == [("token", b"mine")] * challenges * 2


async def test_a_proxy_without_credentials_says_so_to_who_is_challenged() -> None:
    async with plain(TalkingBroker(challenges=1)) as (stage, listening):
        client = await stage.connected()
        answer = await client.lookup(TOPIC)
        assert answer.error == ServerError.AuthenticationError
        error = await turned_away(stage, connect_frame(f"127.0.0.1:{listening.port}"))
        assert error.error == ServerError.AuthenticationError
        assert error.message == answer.message == "the broker asks for credentials, the proxy has none"


@pytest.mark.threat("auth-challenge-flood")
async def test_a_broker_that_never_ends_its_questions_is_left() -> None:
    broker = TalkingBroker(challenges=10**9)
    async with strict(broker, **OWN) as held:
        client = await held.client("alice")
        answer = await client.lookup(TOPIC)
        assert (answer.error, answer.message) == (ServerError.AuthenticationError, ENDLESS)
        assert broker.heard() == [("token", b"mine")] * MOST_CHALLENGES
        error = await turned_away(held.stage, presenting("alice", target=held.target))
        assert (error.error, error.message) == (ServerError.AuthenticationError, ENDLESS)
        assert held.stage.caused("broker_refused") >= 1
        assert broker.heard() == [("token", b"mine")] * MOST_CHALLENGES * 2


# --- a probe that is challenged -----------------------------------------------------------------------


@asynccontextmanager
async def probed(broker: TalkingBroker, **keys: Any) -> AsyncIterator[Mapping[str, object]]:
    """Run a proxy that no client asks, and yield its row of the broker after the probe."""
    async with plain(broker, brokerIdleProbeIntervalMillis=3_600_000, **keys) as (stage, _):
        await stage.until(lambda: any(counted_by(stage.proxy.counters, "broker_probes").values()), "a probe")
        yield stage.proxy.broker_side.brokers.shown()[0]


@pytest.mark.parametrize("challenges", [1, MOST_CHALLENGES])
async def test_a_broker_that_challenges_a_probe_is_up_when_it_has_the_proxy_s_own(challenges: int) -> None:
    broker = TalkingBroker(challenges=challenges)
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
    async with probed(TalkingBroker(challenges=challenges), forwardAuthorizationCredentials=forwards, **own) as row:
        assert row["state"] == "refusing"
        assert reason in str(row["error"])


# --- credentials that a broker wants to be renewed ------------------------------------------------------


async def test_a_broker_gets_the_proxy_s_own_fresh_ones_when_nothing_is_forwarded(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    broker = TalkingBroker()
    async with strict(broker, **{PLUGIN: "token", PARAMETERS: f"file://{token}"}, **NOT_FORWARDING) as held:
        client = await held.client("alice")
        await client.lookup(TOPIC)
        token.write_text("second")
        await broker.peers[0].send(challenge())
        await held.stage.until(lambda: broker.heard() == [("token", b"second")], "an answer")
        await client.lookup(TOPIC)
        assert len(broker.connects) == 1


@asynccontextmanager
async def asked_anew(
    data: str = "alice/1", question: bytes = challenge(), refresh: bool = True, **keys: Any
) -> AsyncIterator[tuple[Court, TalkingBroker, AsyncClient]]:
    """Have a broker ask for newer credentials of a client that has used a connection."""
    broker = TalkingBroker()
    async with strict(broker, **OWN, **FORWARDING, **keys) as held:
        client = await held.client(data, refresh=refresh)
        await client.lookup(TOPIC)
        await broker.peers[0].send(question)
        yield held, broker, client


async def test_a_broker_gets_what_the_client_renews() -> None:
    async with asked_anew() as (held, broker, client):
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
    async with asked_anew(question=challenge(b"what about the first")) as (held, broker, client):
        await held.stage.until(lambda: broker.heard() == [("token", b"mine")], "an answer of the proxy's own")
        # Nothing has come to the client before this, and its connection is its own still.
        await client.ping()
        await client.lookup(TOPIC)
        assert [seen.original_auth_data for seen in broker.connects] == ["alice/1"]


async def test_one_client_answers_for_all_connections_that_wait() -> None:
    broker = TalkingBroker()

    async def use_both(client: AsyncClient) -> None:
        await client.lookup(TOPIC)
        await client.send(schema_frame(9, TOPIC))
        assert (await client.error(9)).message == "what?"

    async with strict(broker, **OWN, **FORWARDING) as held:
        clients = [await held.client("alice/1") for _ in range(2)]
        third = await held.client("alice/1", refresh=False)
        await use_both(third)
        assert len(broker.peers) == 2
        for peer in broker.peers:
            await peer.send(challenge())
        asked = await one_of(clients)
        # Their answers have passed behind both questions.
        await use_both(third)
        await asked.send(response("alice/2"))
        await held.stage.until(lambda: broker.heard() == [("token", b"alice/2")] * 2, "two answers")
        (other,) = set(clients) - {asked}
        await other.ping()


async def test_when_the_one_who_was_asked_leaves_the_next_is_asked() -> None:
    broker = TalkingBroker()
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
    loop = asyncio.get_running_loop()
    reads = {loop.create_task(client.answer()): client for client in clients}
    done, waiting = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
    for read in waiting:
        read.cancel()
    (read,) = done
    assert read.result().type == pb.BaseCommand.AUTH_CHALLENGE
    return reads[read]


async def test_a_connection_that_nobody_renews_is_closed_and_not_used_again() -> None:
    broker = TalkingBroker()
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
    async with asked_anew(refresh=False) as (held, _, client):
        await held.stage.until(lambda: held.stage.caused("credentials_not_renewed") == 1, "a cause")
        await client.ping()
        await client.lookup(TOPIC)


async def test_a_client_that_is_asked_and_says_nothing_costs_the_connection_only() -> None:
    async with asked_anew(authenticationRefreshCheckSeconds=1) as (held, broker, client):
        await challenged(client)
        await held.stage.until(lambda: held.stage.caused("credentials_not_renewed") >= 1, "a cause")
        assert broker.responses == []


async def test_somebody_else_s_credentials_reach_no_broker() -> None:
    async with asked_anew() as (held, broker, client):
        await challenged(client)
        await client.send(response("bob"))
        assert (await refused(client)).error == ServerError.AuthenticationError
        await held.stage.until(lambda: held.stage.caused("credentials_not_renewed") == 1, "a cause")
        assert broker.responses == []


async def test_a_broker_that_asks_in_a_storm_is_answered_one_by_one() -> None:
    async with asked_anew(question=challenge() * 200) as (held, broker, client):
        await challenged(client)
        await client.ping()
        await client.send(response("alice/2"))
        await held.stage.until(lambda: broker.heard() == [("token", b"alice/2")], "one answer")
