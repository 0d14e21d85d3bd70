"""Clients whose service URL is the web port: where an HTTP lookup sends them, and that they arrive."""

import json
import socket

import pytest
from aiohttp import web

from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.async_client import connect_frame
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import TOPIC
from tests.support.web.web_stage import WebStage, web_staged

PATH = "/lookup/v2/topic/persistent/demo/ns-00/topic"


def answering(at: WebStage, broker: str) -> None:
    async def found(request: web.BaseRequest) -> web.StreamResponse:
        assert "Accept-Encoding" not in request.headers
        answer = {"brokerUrl": broker, "nativeUrl": broker, "brokerUrlTls": "", "httpUrl": at.broker.url}
        return web.json_response(answer)

    at.broker.answer = found


async def looked_up(at: WebStage, path: str = PATH) -> dict[str, str]:
    answer = await at.ask(path)
    assert answer.status == 200
    found: dict[str, str] = json.loads(answer.body)
    return found


@pytest.mark.parametrize("path", [PATH, PATH.replace("topic/p", "destination/p")])
async def test_a_client_that_looks_up_by_http_is_joined_to_the_broker_through_this_proxy(path: str) -> None:
    async with web_staged() as at:
        answering(at, at.stage.broker.service_url)
        found = await looked_up(at, path)
        assert found["httpUrl"] == at.url
        assert found["nativeUrl"] == found["brokerUrl"]
        port = int(found["brokerUrl"].removeprefix("pulsar://127.0.0.1:"))
        assert port not in (at.stage.proxy.port, at.stage.broker.port)
        client = await at.stage.client(port=port)
        # As clients do it then: without a word on which broker is meant.
        await client.connect()
        answer = await client.lookup(TOPIC)
        # The broker's own words: nobody in between has answered for it.
        assert not answer.proxy_through_service_url
        assert counted(at.stage.proxy.counters, "lookup_requests") == 0


async def test_each_broker_keeps_one_port() -> None:
    async with web_staged() as at:
        ports = []
        for broker in ("pulsar://a:6650", "pulsar://b:6650", "pulsar://a:6650"):
            answering(at, broker)
            ports.append((await looked_up(at))["brokerUrl"])
        assert ports[0] == ports[2] != ports[1]


async def test_the_advertised_address_is_what_clients_are_told() -> None:
    async with web_staged(advertisedAddress="proxy.example.com") as at:
        answering(at, "pulsar://a:6650")
        assert (await looked_up(at))["brokerUrl"].startswith("pulsar://proxy.example.com:")


async def test_a_broker_for_which_no_port_is_left_is_named_as_it_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with web_staged(httpLookupPorts=taken.getsockname()[1]) as at:
            answering(at, "pulsar://a:6650")
            assert (await looked_up(at))["brokerUrl"] == "pulsar://a:6650"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        *((200, body) for body in (b"[]", b"{}", b"not json", b'{"brokerUrl": 3}', b'{"brokerUrl": "pulsar://"}')),
        (404, b'{"brokerUrl": "pulsar://127.0.0.1:6650"}'),
    ],
)
async def test_what_is_no_answer_to_a_lookup_passes_unchanged(status: int, body: bytes) -> None:
    async with web_staged() as at:

        async def odd(_: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=status, body=body)

        at.broker.answer = odd
        assert (await at.ask(PATH))[::2] == (status, body)


async def test_an_endless_answer_to_a_lookup_is_not_read() -> None:
    async with web_staged() as at:

        async def endless(request: web.BaseRequest) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(b" " * 10_000)

        at.broker.answer = endless
        assert (await at.ask(PATH)).status == 502


@pytest.mark.threat("http-lookup-inner-address")
@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "localhost", "[::ffff:127.0.0.1]"])
async def test_a_lookup_that_names_an_inner_address_leads_nobody_there(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as inner:
        inner.setblocking(False)
        async with web_staged(brokerProxyAllowedIPAddresses="10.0.0.0/8") as at:
            answering(at, f"pulsar://{host}:{inner.getsockname()[1]}")
            # The port is opened for whatever the broker says; the target is checked when a client connects.
            port = int((await looked_up(at))["brokerUrl"].rpartition(":")[2])
            client = await at.stage.client(port=port)
            await client.send(connect_frame())
            assert (await client.command()).type == pb.BaseCommand.ERROR
            with pytest.raises(BlockingIOError):
                inner.accept()
