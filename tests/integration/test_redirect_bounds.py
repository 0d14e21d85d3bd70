"""The bounds on redirects: a lookup asks ten brokers, as the Java proxy does; over HTTP ten redirects are followed."""

import socket

import pytest
from aiohttp import web

from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.brokers.embedded.script import Redirect
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import TOPIC, staged
from tests.support.web.fake_web_broker import redirect_to
from tests.support.web.web_stage import ADMIN, web_staged

ASKED, FOLLOWED = 10, 10


@pytest.mark.parametrize("redirects", [ASKED - 1, ASKED])
async def test_a_lookup_asks_ten_brokers_and_no_more(redirects: int) -> None:
    async with staged() as stage:
        stage.broker.script.redirects.extend([Redirect(stage.broker.service_url)] * redirects)
        client = await stage.connected()
        answer = await client.lookup(TOPIC)
        if redirects < ASKED:
            assert answer.response == pb.CommandLookupTopicResponse.Connect
        else:
            text = "reached max number of redirections (10)"
            assert (answer.error, answer.message) == (ServerError.ServiceNotReady, text)
        assert stage.broker.record.received[CommandType.LOOKUP] == ASKED


@pytest.mark.parametrize("redirects", [FOLLOWED, FOLLOWED + 1])
async def test_a_web_request_follows_ten_redirects_and_no_more(redirects: int) -> None:
    async with web_staged() as at:

        async def redirect(_: web.BaseRequest) -> web.StreamResponse:
            if len(at.broker.asked) > redirects:
                return web.Response(text="found")
            return web.Response(status=307, headers={"Location": ADMIN})

        at.broker.answer = redirect
        answer = await at.ask()
        if redirects == FOLLOWED:
            assert (answer.status, answer.text) == (200, "found")
        else:
            assert (answer.status, "more than 10 times" in answer.text) == (502, True)
        assert len(at.broker.asked) == 1 + FOLLOWED
        # The metric counts redirects that were followed.
        assert counted(at.stage.proxy.counters, "http_redirects") == FOLLOWED


@pytest.mark.threat("malformed-redirect")
async def test_a_redirect_to_a_server_that_does_not_listen_is_no_error_of_the_proxy() -> None:
    async with web_staged(brokerWebServiceAllowedTargetPorts="*") as at:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            at.broker.answer = redirect_to(f"http://127.0.0.1:{bound.getsockname()[1]}{ADMIN}")
            answer = await at.ask()
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            assert "redirected to cannot be reached" in answer.text
