"""Who gets the proxy's own secret credentials: known brokers, and nobody whom a client or a stranger names."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web

from proxy.brokers import admin_port, broker_list
from tests.support.brokers.judging_broker import TalkingBroker
from tests.support.brokers.raw_broker import raw_broker
from tests.support.clients.async_client import AsyncClient
from tests.support.patience import patient
from tests.support.proxies.counted import counted_by
from tests.support.proxies.proxy_under_test import TOPIC, staged
from tests.support.proxies.several import several_proxies
from tests.support.proxies.targets import refused_target
from tests.support.sockets.ports import free_port
from tests.support.web.fake_web_broker import FakeWebBroker, fake_web_broker
from tests.support.web.web_pages import get

TOKEN = b"the-proxys-own"
OWN: dict[str, Any] = {
    "brokerClientAuthenticationPlugin": "token",
    "brokerClientAuthenticationParameters": f"token:{TOKEN.decode()}",
}
OTHER_HOST = "127.0.0.2"


# --- strangers --------------------------------------------------------------------------------------


@pytest.mark.threat("token-to-foreign-host")
async def test_a_foreign_listener_that_an_anonymous_client_names_never_sees_the_token() -> None:
    foreign = TalkingBroker(challenges=1)
    async with raw_broker(foreign.serve) as listening, staged(**OWN) as stage:
        assert await refused_target(stage, f"127.0.0.1:{listening.port}")
        assert stage.caused("target_unknown") == 1
        assert counted_by(stage.proxy.counters, "credentials_withheld") == {"relay": 1, "redirect": 0, "http": 0}
        assert listening.peers == []
    assert foreign.tokens == []


@pytest.mark.parametrize(
    "key", [{"brokerProxyAllowedHostNames": "127.0.0.1"}, {"brokerProxyAllowedIPAddresses": "127.0.0.0/8"}]
)
async def test_a_target_inside_a_narrowed_key_is_known_until_the_key_is_wide_again(key: dict[str, Any]) -> None:
    foreign = TalkingBroker()
    async with raw_broker(foreign.serve) as listening, staged(**OWN, **key) as stage:
        await (await stage.client()).connect(target=f"127.0.0.1:{listening.port}")
        stage.change(**dict.fromkeys(key, "*"))
        assert await refused_target(stage, f"127.0.0.1:{listening.port}")
    assert foreign.tokens == [TOKEN]


# --- brokers that brokers name ----------------------------------------------------------------------


async def test_a_broker_that_a_lookup_named_is_known_to_any_client_at_that_port() -> None:
    owner, foreign = TalkingBroker(), TalkingBroker()
    async with raw_broker(owner.serve) as owning, raw_broker(foreign.serve) as listening:
        broker = TalkingBroker(url=f"pulsar://localhost:{owning.port}")
        async with raw_broker(broker.serve) as answering, staged(broker_port=answering.port, **OWN) as stage:
            assert await refused_target(stage, f"localhost:{owning.port}")
            asking = await stage.connected()
            assert (await asking.lookup(TOPIC)).brokerServiceUrl == broker.url
            await (await stage.client()).connect(target=f"LOCALHOST:{owning.port}")
            # The name that the broker told, not what it resolves to: that may be anybody's tomorrow.
            assert await refused_target(stage, f"127.0.0.1:{owning.port}")
            assert await refused_target(stage, f"localhost:{listening.port}")
    assert owner.tokens == [TOKEN]
    assert foreign.tokens == []


async def test_a_redirect_of_a_broker_is_followed_and_its_answer_counts() -> None:
    owner = TalkingBroker()
    async with raw_broker(owner.serve, host=OTHER_HOST) as owning:
        leader = TalkingBroker(url=f"pulsar://{OTHER_HOST}:{owning.port}")
        async with raw_broker(leader.serve, host="127.0.0.3") as leading:
            broker = TalkingBroker(url=f"pulsar://127.0.0.3:{leading.port}", redirects=True)
            async with raw_broker(broker.serve) as answering, staged(broker_port=answering.port, **OWN) as stage:
                found = await (await stage.connected()).lookup(TOPIC)
                assert found.brokerServiceUrl == leader.url
                await (await stage.client()).connect(target=f"{OTHER_HOST}:{owning.port}")
    assert broker.tokens == leader.tokens == owner.tokens == [TOKEN]


async def test_a_broker_that_an_http_lookup_named_is_known() -> None:
    owner = TalkingBroker()

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"brokerUrl": f"pulsar://{target}", "nativeUrl": f"pulsar://{target}"})

    async with raw_broker(owner.serve) as owning, fake_web_broker(answer) as service:
        target = f"localhost:{owning.port}"
        async with staged(**OWN, brokerWebServiceURL=service.url) as stage:
            assert await refused_target(stage, target)
            assert (await get(stage.proxy.web_port, "/lookup/v2/topic/persistent/t/n/topic")).status == 200
            await (await stage.client()).connect(target=target)
    assert owner.tokens == [TOKEN]


# --- the brokers' own list --------------------------------------------------------------------------


@dataclass
class Cluster:
    """A broker at two addresses with one port, of which the second is named by lookups and in the list only."""

    first: TalkingBroker
    second: TalkingBroker
    service: FakeWebBroker
    port: int

    @property
    def keys(self) -> dict[str, Any]:
        return {**OWN, "brokerWebServiceURL": self.service.url}


@pytest.fixture(autouse=True)
def time_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the list of brokers the time of this machine."""
    monkeypatch.setattr(admin_port, "ANSWER_SECONDS", patient(admin_port.ANSWER_SECONDS))
    monkeypatch.setattr(broker_list, "WAIT_SECONDS", patient(broker_list.WAIT_SECONDS))


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    first, second = TalkingBroker(), TalkingBroker()
    async with AsyncExitStack() as stack:
        # No port that the kernel gives away: the other host may have it for another.
        port = free_port()
        await stack.enter_async_context(raw_broker(first.serve, port=port))
        await stack.enter_async_context(raw_broker(second.serve, host=OTHER_HOST, port=port))
        service = await stack.enter_async_context(fake_web_broker())
        first.url = f"pulsar://{OTHER_HOST}:{port}"
        service.brokers = [f"{OTHER_HOST}:8080"]
        yield Cluster(first, second, service, port)


@pytest.mark.threat("other-port-of-broker")
async def test_a_broker_of_the_list_is_known_at_the_configured_port_only() -> None:
    foreign = TalkingBroker()
    async with cluster() as held, raw_broker(foreign.serve, host=OTHER_HOST) as listening:
        async with staged(broker_port=held.port, **held.keys) as stage:
            await (await stage.client()).connect(target=f"{OTHER_HOST}:{held.port}")
            assert await refused_target(stage, f"{OTHER_HOST}:{listening.port}")
            assert await refused_target(stage, f"127.0.0.3:{held.port}")
        question = held.service.list_questions[0]
        assert question.header("Authorization") == f"Bearer {TOKEN.decode()}"
    assert held.second.tokens == [TOKEN]
    assert foreign.tokens == []


@pytest.mark.threat("endless-unknown-hosts")
async def test_unknown_hosts_without_end_cost_a_question_a_second() -> None:
    async with cluster() as held, staged(broker_port=held.port, **held.keys) as stage:
        began = asyncio.get_running_loop().time()
        for number in range(3):
            targets = [f"127.0.1.{number * 50 + each}:{held.port}" for each in range(50)]
            await asyncio.gather(*(refused_target(stage, target) for target in targets))
        seconds = asyncio.get_running_loop().time() - began
        assert 2 <= len(held.service.list_questions) <= seconds + 2


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
