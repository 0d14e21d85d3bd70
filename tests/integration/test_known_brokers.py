"""Who gets the proxy's own secret credentials: known brokers, and nobody whom a client or a stranger names."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from protocol.commands import error, frame, lookup_connect, request_id_of
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers.resolver import CachingResolver
from proxy.core.public_causes import TARGET_TEXT
from tests.support.auth.credentials import challenge, court, presenting
from tests.support.brokers.raw_broker import CONNECTED, raw_broker
from tests.support.clients.async_client import AsyncClient, connect_frame, eventually
from tests.support.proxies.proxy_under_test import TOPIC, Stage, staged
from tests.support.proxies.several import several_proxies
from tests.support.sockets.ports import free_port
from tests.support.web.fake_web_broker import FakeWebBroker, fake_web_broker

TOKEN = b"the-proxys-own"
OWN: dict[str, Any] = {
    "brokerClientAuthenticationPlugin": "token",
    "brokerClientAuthenticationParameters": f"token:{TOKEN.decode()}",
}
UNKNOWN = TARGET_TEXT
REDIRECTED = "the proxy does not know this broker: look the topic up again"
OTHER_HOST = "127.0.0.2"


@dataclass
class Listener:
    """A server that speaks Pulsar, asks for credentials once more, and keeps all that it is told."""

    names: str = ""
    redirects: bool = False
    challenges: bool = False
    connects: list[pb.CommandConnect] = field(default_factory=list)
    responses: list[pb.CommandAuthResponse] = field(default_factory=list)

    async def serve(self, peer: AsyncClient) -> None:
        self.connects.append((await peer.command()).connect)
        if self.challenges:
            await peer.send(challenge(b"who are you"))
            self.responses.append((await peer.command()).authResponse)
        await peer.send(CONNECTED)
        while True:
            command = await peer.answer(pong=True)
            if command.type != pb.BaseCommand.LOOKUP:
                await peer.send(error(request_id_of(command), ServerError.UnknownError, "what?"))
            elif self.redirects:
                answer = pb.CommandLookupTopicResponse(
                    request_id=request_id_of(command),
                    response=pb.CommandLookupTopicResponse.Redirect,
                    brokerServiceUrl=self.names,
                    authoritative=True,
                )
                await peer.send(framed(answer))
            else:
                await peer.send(lookup_connect(request_id_of(command), self.names))

    @property
    def tokens(self) -> list[bytes]:
        """Return the tokens that the server was given."""
        return [each.auth_data for each in self.connects] + [each.response.auth_data for each in self.responses]


def framed(answer: pb.CommandLookupTopicResponse) -> bytes:
    return frame(pb.BaseCommand(type=pb.BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=answer))


async def refused(stage: Stage, target: str, connect: bytes | None = None) -> str:
    """Ask for `target`; the client must get ServiceNotReady, then its end. Return the text."""
    client = await stage.client()
    await client.send(connect or connect_frame(target))
    answer = await client.command()
    assert answer.type == pb.BaseCommand.ERROR, answer
    assert answer.error.error == ServerError.ServiceNotReady
    return answer.error.message


def withheld(stage: Stage) -> dict[str, int]:
    return stage.proxy.counters.brokers.credentials_withheld


# --- strangers --------------------------------------------------------------------------------------


@pytest.mark.threat("token-to-foreign-host")
@pytest.mark.parametrize("challenges", [False, True])
async def test_a_foreign_listener_that_an_anonymous_client_names_never_sees_the_token(challenges: bool) -> None:
    foreign = Listener(challenges=challenges)
    async with raw_broker(foreign.serve) as listening, staged(**OWN) as stage:
        assert await refused(stage, f"127.0.0.1:{listening.port}") == UNKNOWN
        assert stage.caused("target_unknown") == 1
        assert withheld(stage) == {"relay": 1, "redirect": 0, "http": 0}
        assert listening.peers == []
    assert foreign.tokens == []


@pytest.mark.threat("token-to-foreign-host")
@pytest.mark.parametrize("challenges", [False, True])
@pytest.mark.parametrize("forward", ["true", "false"])
async def test_a_foreign_listener_that_an_authenticated_client_names_never_sees_the_token(
    challenges: bool, forward: str
) -> None:
    foreign = Listener(challenges=challenges)
    async with raw_broker(foreign.serve) as listening, court(**OWN, forwardAuthorizationCredentials=forward) as held:
        target = f"127.0.0.1:{listening.port}"
        assert await refused(held.stage, target, presenting("alice", target=target)) == UNKNOWN
    assert foreign.tokens == []


@pytest.mark.threat("other-port-of-broker")
async def test_only_the_port_of_a_configured_broker_is_known() -> None:
    foreign = Listener()
    async with raw_broker(foreign.serve) as listening, staged(**OWN) as stage:
        await (await stage.client()).connect(target=f"127.0.0.1:{stage.broker.port}")
        await (await stage.client()).connect(target=f"localhost:{stage.broker.port}")
        assert await refused(stage, f"127.0.0.1:{listening.port}") == UNKNOWN
        assert await refused(stage, f"localhost:{listening.port}") == UNKNOWN
        assert await refused(stage, f"[::ffff:127.0.0.1]:{listening.port}") == UNKNOWN
    assert foreign.tokens == []


async def test_without_secret_credentials_every_allowed_target_is_served_as_before() -> None:
    foreign = Listener()
    async with raw_broker(foreign.serve) as listening, staged() as stage:
        await (await stage.client()).connect(target=f"127.0.0.1:{listening.port}")
    assert foreign.tokens == [b""]


async def test_the_key_for_any_target_brings_the_java_proxys_behaviour_back() -> None:
    foreign = Listener(challenges=True)
    any_target: dict[str, Any] = {"brokerProxyCredentialsToAnyTarget": "true"}
    async with raw_broker(foreign.serve) as listening, staged(**OWN, **any_target) as stage:
        await (await stage.client()).connect(target=f"127.0.0.1:{listening.port}")
    assert foreign.tokens == [TOKEN, TOKEN]


@pytest.mark.parametrize(
    "key", [{"brokerProxyAllowedHostNames": "127.0.0.1"}, {"brokerProxyAllowedIPAddresses": "127.0.0.0/8"}]
)
async def test_a_target_inside_a_narrowed_key_is_known_until_the_key_is_wide_again(key: dict[str, Any]) -> None:
    foreign = Listener()
    async with raw_broker(foreign.serve) as listening, staged(**OWN, **key) as stage:
        await (await stage.client()).connect(target=f"127.0.0.1:{listening.port}")
        stage.change(**dict.fromkeys(key, "*"))
        assert await refused(stage, f"127.0.0.1:{listening.port}") == UNKNOWN
    assert foreign.tokens == [TOKEN]


# --- brokers that brokers name ----------------------------------------------------------------------


async def test_a_broker_that_a_lookup_named_is_known_to_any_client_at_that_port() -> None:
    owner, foreign = Listener(), Listener()
    async with raw_broker(owner.serve) as owning, raw_broker(foreign.serve) as listening:
        broker = Listener(names=f"pulsar://localhost:{owning.port}")
        async with raw_broker(broker.serve) as answering, staged(broker_port=answering.port, **OWN) as stage:
            assert await refused(stage, f"localhost:{owning.port}") == UNKNOWN
            asking = await stage.connected()
            assert (await asking.lookup(TOPIC)).brokerServiceUrl == broker.names
            await (await stage.client()).connect(target=f"LOCALHOST:{owning.port}")
            # The name that the broker told, not what it resolves to: that may be anybody's tomorrow.
            assert await refused(stage, f"127.0.0.1:{owning.port}") == UNKNOWN
            assert await refused(stage, f"localhost:{listening.port}") == UNKNOWN
    assert owner.tokens == [TOKEN]
    assert foreign.tokens == []


async def test_a_redirect_of_a_broker_is_followed_and_its_answer_counts() -> None:
    owner = Listener()
    async with raw_broker(owner.serve, host=OTHER_HOST) as owning:
        leader = Listener(names=f"pulsar://{OTHER_HOST}:{owning.port}")
        async with raw_broker(leader.serve, host="127.0.0.3") as leading:
            broker = Listener(names=f"pulsar://127.0.0.3:{leading.port}", redirects=True)
            async with raw_broker(broker.serve) as answering, staged(broker_port=answering.port, **OWN) as stage:
                found = await (await stage.connected()).lookup(TOPIC)
                assert found.brokerServiceUrl == leader.names
                await (await stage.client()).connect(target=f"{OTHER_HOST}:{owning.port}")
                assert withheld(stage)["redirect"] == 0
    assert broker.tokens == leader.tokens == owner.tokens == [TOKEN]


@pytest.mark.parametrize("keys", [OWN, {}])
async def test_a_redirect_to_a_target_that_no_known_broker_named_is_not_followed(keys: dict[str, Any]) -> None:
    foreign = Listener()
    async with raw_broker(foreign.serve) as listening:
        broker = Listener(names=f"pulsar://127.0.0.1:{listening.port}", redirects=True)
        async with raw_broker(broker.serve) as answering, court(broker_port=answering.port, **keys) as held:
            # As if the answer had come from a server that is not known.
            held.stage.proxy.services.requests.lookups._known = None
            found = await (await held.client("alice")).lookup(TOPIC)
            assert (found.error, found.message) == (ServerError.ServiceNotReady, REDIRECTED)
            assert withheld(held.stage)["redirect"] == 1
    assert foreign.tokens == []


def lookup_answer(broker: str) -> Any:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=json.dumps({"brokerUrl": broker, "nativeUrl": broker}).encode())

    return answer


HTTP_LOOKUP = "/lookup/v2/topic/persistent/t/n/topic"


async def ask_web(stage: Stage, path: str, headers: dict[str, str] | None = None) -> int:
    url = f"http://127.0.0.1:{stage.proxy.web_port}{path}"
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as answer:
        await answer.read()
        return answer.status


async def test_a_broker_that_an_http_lookup_named_is_known() -> None:
    owner = Listener()
    async with raw_broker(owner.serve) as owning, fake_web_broker() as service:
        target = f"localhost:{owning.port}"
        service.answer = lookup_answer(f"pulsar://{target}")
        async with staged(**OWN, brokerWebServiceURL=service.url) as stage:
            assert await refused(stage, target) == UNKNOWN
            assert await ask_web(stage, HTTP_LOOKUP) == 200
            await (await stage.client()).connect(target=target)
    assert owner.tokens == [TOKEN]


@pytest.mark.threat("claimed-host-in-lookup")
@pytest.mark.parametrize("claim", ["Host", "X-Forwarded-Host", "X_Forwarded_Host", "X-Forwarded-Port", "Forwarded"])
async def test_a_host_that_a_client_claims_in_a_lookup_makes_nobody_known(claim: str) -> None:
    """The broker redirects to wherever the request says that it was sent."""
    foreign = Listener()
    async with raw_broker(foreign.serve) as listening, fake_web_broker() as service, fake_web_broker() as stranger:
        target = f"localhost:{listening.port}"
        stranger.answer = lookup_answer(f"pulsar://{target}")
        claimed = f"127.0.0.1:{stranger.port}"

        async def redirect(request: web.BaseRequest) -> web.StreamResponse:
            if any(str(stranger.port) in value for value in request.headers.values()):
                return web.Response(status=307, headers={"Location": f"http://{claimed}{HTTP_LOOKUP}"})
            return web.Response(status=404)

        service.answer = redirect
        keys: dict[str, Any] = {"brokerWebServiceAllowedTargetPorts": "*", "brokerWebServiceURL": service.url}
        async with staged(**OWN, **keys) as stage:
            assert await ask_web(stage, HTTP_LOOKUP, {claim: claimed}) == 404
            assert await refused(stage, target) == UNKNOWN
        assert (len(service.asked), len(stranger.asked)) == (1, 0)
    assert foreign.tokens == []


@pytest.mark.threat("lookups-of-no-broker")
async def test_answers_of_an_extra_route_make_nobody_known() -> None:
    foreign = Listener()
    async with raw_broker(foreign.serve) as listening, fake_web_broker() as stranger:
        target = f"localhost:{listening.port}"
        stranger.answer = lookup_answer(f"pulsar://{target}")
        route: dict[str, Any] = {
            "httpReverseProxy.other.path": "/lookup",
            "httpReverseProxy.other.proxyTo": stranger.url,
        }
        async with staged(**OWN, **route) as stage:
            assert await ask_web(stage, HTTP_LOOKUP) == 200
            assert await refused(stage, target) == UNKNOWN
    assert foreign.tokens == []


@pytest.mark.threat("lookups-of-no-broker")
async def test_a_lookup_that_is_redirected_to_an_extra_route_makes_nobody_known() -> None:
    foreign = Listener()
    async with raw_broker(foreign.serve) as listening, fake_web_broker() as service, fake_web_broker() as stranger:
        target = f"localhost:{listening.port}"
        stranger.answer = lookup_answer(f"pulsar://{target}")

        async def redirect(_: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=307, headers={"Location": stranger.url + HTTP_LOOKUP})

        service.answer = redirect
        route: dict[str, Any] = {
            "httpReverseProxy.other.path": "/other",
            "httpReverseProxy.other.proxyTo": stranger.url,
        }
        async with staged(**OWN, brokerWebServiceURL=service.url, **route) as stage:
            assert await ask_web(stage, HTTP_LOOKUP) == 200
            assert await refused(stage, target) == UNKNOWN
    assert foreign.tokens == []


@pytest.mark.parametrize(("keys", "serves"), [({}, True), (OWN, False)])
async def test_no_resolver_of_a_proxy_with_secret_credentials_serves_stale_answers(
    keys: dict[str, Any], serves: bool
) -> None:
    async with staged(**keys) as stage:
        side = stage.proxy.broker_side
        names: list[Any] = [side.brokers._names, *side._target_names]
        assert [each._stale_serves for each in names] == 3 * [serves]


async def test_every_resolver_hears_of_an_address_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    told: set[int] = set()

    def failed(resolver: CachingResolver, host: str, port: int, address: str) -> None:
        if (host, port) == ("localhost", 1):
            told.add(id(resolver))

    monkeypatch.setattr(CachingResolver, "address_failed", failed)
    async with staged() as stage:
        await refused(stage, "localhost:1")
        await stage.until(lambda: len(told) == 3, "three resolvers that know")


# --- the brokers' own list --------------------------------------------------------------------------


@dataclass
class Cluster:
    """A broker at two addresses with one port, of which the second is named by lookups and in the list only."""

    first: Listener
    second: Listener
    service: FakeWebBroker
    port: int

    @property
    def keys(self) -> dict[str, Any]:
        return {**OWN, "brokerWebServiceURL": self.service.url}


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    first, second = Listener(), Listener()
    async with AsyncExitStack() as stack:
        # No port that the kernel gives away: the other host may have it for another.
        port = free_port()
        await stack.enter_async_context(raw_broker(first.serve, port=port))
        await stack.enter_async_context(raw_broker(second.serve, host=OTHER_HOST, port=port))
        service = await stack.enter_async_context(fake_web_broker())
        first.names = f"pulsar://{OTHER_HOST}:{port}"
        service.brokers = [f"{OTHER_HOST}:8080"]
        yield Cluster(first, second, service, port)


@pytest.mark.threat("other-port-of-broker")
async def test_a_broker_of_the_list_is_known_at_the_configured_port_only() -> None:
    foreign = Listener()
    async with cluster() as held, raw_broker(foreign.serve, host=OTHER_HOST) as listening:
        async with staged(broker_port=held.port, **held.keys) as stage:
            await (await stage.client()).connect(target=f"{OTHER_HOST}:{held.port}")
            assert await refused(stage, f"{OTHER_HOST}:{listening.port}") == UNKNOWN
            assert await refused(stage, f"127.0.0.3:{held.port}") == UNKNOWN
        question = held.service.list_questions[0]
        assert question.header("Authorization") == f"Bearer {TOKEN.decode()}"
    assert held.second.tokens == [TOKEN]
    assert foreign.tokens == []


async def test_connects_wait_for_one_question_and_those_who_leave_wait_no_longer() -> None:
    async with cluster() as held:
        held.service.list_shown.clear()
        async with staged(broker_port=held.port, **held.keys) as stage:
            await stage.until(lambda: len(held.service.list_questions) == 1, "a question at the start")
            clients = [await stage.client() for _ in range(20)]
            for client in clients:
                await client.send(connect_frame(f"{OTHER_HOST}:{held.port}"))
            await stage.until(lambda: len(stage.proxy.sessions) == 20, "clients that wait")
            for client in clients[:10]:
                client.reset()
                stage.clients.remove(client)
            await stage.until(lambda: len(stage.proxy.sessions) == 10, "the others only")
            held.service.list_shown.set()
            for client in clients[10:]:
                assert (await client.command()).type == pb.BaseCommand.CONNECTED
            assert len(held.service.list_questions) == 1
    assert held.second.tokens == [TOKEN] * 10


async def test_a_broker_that_joins_the_list_is_known_after_one_more_question() -> None:
    async with cluster() as held:
        held.service.brokers = []
        async with staged(broker_port=held.port, **held.keys) as stage:
            assert await refused(stage, f"{OTHER_HOST}:{held.port}") == UNKNOWN
            held.service.brokers = [f"{OTHER_HOST}:8080"]
            await (await stage.client()).connect(target=f"{OTHER_HOST}:{held.port}")


@pytest.mark.parametrize("status", [401, 403])
async def test_a_role_that_may_not_read_the_list_asks_no_more(status: int) -> None:
    async with cluster() as held:
        held.service.brokers = status
        async with staged(broker_port=held.port, **held.keys) as stage:
            for _ in range(5):
                assert await refused(stage, f"{OTHER_HOST}:{held.port}") == UNKNOWN
            assert len(held.service.list_questions) == 1
            # A lookup through this process still makes the broker known.
            await (await stage.connected()).lookup(TOPIC)
            await (await stage.client()).connect(target=f"{OTHER_HOST}:{held.port}")
    assert held.second.tokens == [TOKEN]


@pytest.mark.parametrize("moment", ["at once", "soon", "asked"])
async def test_a_stop_while_the_list_is_asked_for_leaves_nothing_behind(moment: str) -> None:
    async with cluster() as held:
        held.service.list_shown.clear()
        for number in range(5):
            async with staged(broker_port=held.port, **held.keys) as stage:
                if moment == "soon":
                    await asyncio.sleep(0.001 * number)
                elif moment == "asked":
                    expected = number + 1
                    await stage.until(lambda: len(held.service.list_questions) == expected, "a question")  # noqa: B023
        held.service.list_shown.set()


# --- several proxies behind one address -------------------------------------------------------------

ROUNDS = 6


async def test_of_three_proxies_behind_one_address_a_new_one_joins_clients_to_brokers_it_never_looked_up() -> None:
    async with cluster() as held, several_proxies(3, f"pulsar://127.0.0.1:{held.port}", **held.keys) as proxies:
        for _ in range(ROUNDS):
            asking = await AsyncClient.open(proxies.port)
            await asking.connect()
            owner = (await asking.lookup(TOPIC)).brokerServiceUrl
            await proxies.restart(proxies.next())
            relayed = await AsyncClient.open(proxies.port)
            await relayed.connect(target=owner.removeprefix("pulsar://"))
            asking.close()
            relayed.close()
        assert proxies.caused("target_unknown") == 0
    assert held.second.tokens == [TOKEN] * ROUNDS
    assert TOKEN not in proxies.log.getvalue()


async def test_a_proxy_without_a_list_refuses_what_another_looked_up_and_says_which_keys_help() -> None:
    async with cluster() as held, several_proxies(2, f"pulsar://127.0.0.1:{held.port}", **OWN) as proxies:
        asking = await AsyncClient.open(proxies.port)
        await asking.connect()
        await asking.lookup(TOPIC)
        relayed = await AsyncClient.open(proxies.port)
        await relayed.send(connect_frame(f"{OTHER_HOST}:{held.port}"))
        told = (await relayed.last_command()).error
        assert (told.error, told.message) == (ServerError.ServiceNotReady, UNKNOWN)
        await eventually(lambda: b"brokerProxyAllowedHostNames" in proxies.log.getvalue(), "a line with the keys")
        # The client looks the topic up again, and this time its lookup reaches the proxy that refused.
        again = await AsyncClient.open(proxies.proxies[1].port)
        await again.connect()
        await again.lookup(TOPIC)
        joined = await AsyncClient.open(proxies.proxies[1].port)
        await joined.connect(target=f"{OTHER_HOST}:{held.port}")
        for client in (asking, relayed, again, joined):
            client.close()
        await asyncio.sleep(0)
