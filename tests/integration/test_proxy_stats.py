"""What a proxy at work tells about its relays and its configuration, and who may ask: /proxy-stats and /config."""

import asyncio
import json
from time import monotonic
from typing import Any

import pytest

from proxy.app import proxy as app
from proxy.config.config import Config
from proxy.web.http import renderings
from tests.integration.test_direct_mode import greet
from tests.support.auth.tokens import SECRET, data_url, signed
from tests.support.brokers.raw_broker import raw_broker
from tests.support.proxies.proxy_under_test import Stage, kept_log, staged
from tests.support.web.web_pages import Page, get
from tests.unit.proxy.relay.test_relay_log import TOPIC, producer, sent, subscribe

STATS = "/proxy-stats"


async def asked(stage: Stage, path: str, method: str = "GET") -> Page:
    return await get(stage.proxy.web_port, path, method)


async def document(stage: Stage, path: str) -> Any:
    page = await asked(stage, path)
    assert (page.status, page.headers["content-type"]) == (200, "application/json"), page
    return json.loads(page.text)


def relay_of(stage: Stage) -> Any:
    (relay,) = stage.proxy.sessions.all_relays()
    return relay


async def test_a_relayed_connection_is_shown_with_upstream_s_fields_and_its_client_s_rates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The proxy's own ticks would take what they see as the rates of their second.
    monkeypatch.setattr(app, "TICK_SECONDS", 3600)
    async with staged() as stage:
        assert await document(stage, f"{STATS}/connections") == []
        client = await stage.relayed()
        await stage.connected()
        relay = relay_of(stage)
        began = stage.proxy.loop.time()
        relay.tick(began)
        for number in range(4):
            await client.send(producer(number))
            await client.command()
        relay.tick(began + 10.0)
        (shown,) = await document(stage, f"{STATS}/connections")
        assert shown["byteRate"] == 4 * len(producer(0)) / 10.0
        assert shown["requestRate"] == 0.4
        relay.tick(began + 20.0)
        (shown,) = await document(stage, f"{STATS}/connections")
        assert shown == {
            "requestRate": 0.0,
            "byteRate": 0.0,
            "clientAddress": "/{}:{}".format(*client.sock.getsockname()),
            "brokerAddress": f"/127.0.0.1:{stage.broker.port}",
        }


async def test_rates_of_topics_need_level_2() -> None:
    async with staged() as stage:
        assert (await asked(stage, f"{STATS}/topics")).status == 412
        assert await document(stage, f"{STATS}/logging") == 0
        assert (await asked(stage, f"{STATS}/logging/2", "POST")).status == 204
        assert await document(stage, f"{STATS}/logging") == 2
        assert await document(stage, f"{STATS}/topics") == {}
        client = await stage.relayed()
        await client.send(producer() + subscribe())
        for _ in range(2):
            await client.command()
        await client.send(sent(payload=b"x" * 100))
        await stage.until(lambda: len(stage.proxy.relay_log.rates), "a message seen")
        assert stage.proxy.relay_log.names == 2
        stage.proxy.relay_log.tick(stage.proxy.loop.time() + 10.0)
        rates = (await document(stage, f"{STATS}/topics"))[TOPIC]
        assert set(rates) == {"msgRateIn", "msgByteIn", "msgRateOut", "msgByteOut"}
        assert rates["msgRateIn"] > 0
        assert (await asked(stage, f"{STATS}/logging/0", "POST")).status == 204
        assert (await asked(stage, f"{STATS}/topics")).status == 412
        assert not len(stage.proxy.relay_log.rates)
        client.close()
        await stage.until(lambda: not stage.proxy.relay_log.names, "its names forgotten")


@pytest.mark.threat("refusal-log-storm")
async def test_a_storm_of_changes_is_a_line_a_second_that_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    log, began = kept_log(monkeypatch), monotonic()
    async with staged() as stage:

        def told() -> list[dict[str, Any]]:
            return log.of("configuration changed")

        for number in range(100):
            await asked(stage, f"{STATS}/logging/{2 - number % 2}", "POST")
        await stage.until(lambda: sum(line.get("changes", 1) for line in told()) == 100, "a line that has the last")
        assert len(told()) <= monotonic() - began + 2
        assert [(told()[0][name], told()[-1][name]) for name in ("key", "new")] == [("proxyLogLevel",) * 2, ("2", "1")]


@pytest.mark.threat("logged-topics-without-end")
async def test_topics_without_end_fill_a_table_that_is_bounded_for_each_connection_and_in_all() -> None:
    async with staged(proxyLogLevel=2) as stage, raw_broker(greet) as broker:
        for number, expected in enumerate((1_024, 2_048, 3_072, 4_096, 4_096)):
            client = await stage.client()
            await client.connect(target=f"127.0.0.1:{broker.port}")
            frames = b"".join(producer(topic, f"{number}/{topic}") + sent(topic) for topic in range(1_100))
            await client.send(frames)
            assert await broker.peers[-1].receive(len(frames)) == frames
            assert len(await document(stage, f"{STATS}/topics")) == expected


@pytest.mark.parametrize("level", ["3", "-1", "x", "9" * 50, "%20"])
async def test_what_is_no_level_changes_nothing(level: str) -> None:
    async with staged() as stage:
        # A path with a control character gets no further than the server.
        expected = (400, 412) if level.startswith("%") else (412,)
        assert (await asked(stage, f"{STATS}/logging/{level}", "POST")).status in expected
        assert stage.proxy.relay_log.level == 0


async def test_the_name_of_a_log_level_changes_that_and_a_reload_brings_the_file_s_back() -> None:
    async with staged() as stage:
        page = await asked(stage, f"{STATS}/logging/debug", "POST")
        assert (page.status, json.loads(page.text)) == (200, {"logLevel": "debug"})
        assert stage.proxy.log.level == "debug"
        entry = (await document(stage, "/config"))["keys"]["logLevel"]
        assert (entry["value"], entry["origin"]) == ("debug", "live")
        stage.proxy.log.set_level("error")


async def test_the_configuration_is_shown_with_its_sources_and_without_secrets() -> None:
    async with staged(brokerClientAuthenticationParameters="token:hush", clusterName="data:hush") as stage:
        page = await asked(stage, "/config")
        assert "hush" not in page.text
        keys = json.loads(page.text)["keys"]
        assert keys["brokerClientAuthenticationParameters"]["value"] == "(hidden)"
        assert set(keys) == {key.name for key in Config.keys()}  # noqa: SIM118
        assert page.headers["cache-control"] == "no-store"


async def test_all_of_it_can_be_turned_off_but_metrics_on_their_own_port() -> None:
    # The Java proxy serves no metrics then, either.
    async with staged(enableProxyStatsEndpoints="false", metricsPort="0") as stage:
        for path in ("/metrics", "/config", f"{STATS}/connections", f"{STATS}/topics", f"{STATS}/logging"):
            assert (await asked(stage, path)).status == 404
        assert (await asked(stage, f"{STATS}/logging/2", "POST")).status == 404
        assert (await asked(stage, "/healthz")).status == 200
        web = stage.proxy.web
        assert web is not None
        assert web.metrics_port is not None
        assert (await get(web.metrics_port, "/metrics")).status == 200


@pytest.mark.threat("endless-own-pages")
async def test_a_page_asked_for_without_end_is_made_once_in_its_time_and_shown_to_those_alone_who_may_see_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(renderings, "KEEP_SECONDS", 60.0)
    token = f"Authorization: Bearer {signed({'sub': 'alice'}).decode()}"
    keys: dict[str, Any] = {"authenticationEnabled": "true", "authenticationProviders": "token"}
    keys["tokenSecretKey"] = data_url(SECRET)
    async with staged(**keys) as stage:
        port = stage.proxy.web_port
        first = await get(port, "/metrics", "GET", token)
        await stage.client()
        await stage.until(lambda: len(stage.proxy.sessions) == 1, "a number that has changed")
        pages = await asyncio.gather(*(get(port, "/metrics", "GET", token) for _ in range(20)))
        assert (first.status, {page.text for page in pages}) == (200, {first.text})
        assert (await get(port, "/metrics")).status == 401
