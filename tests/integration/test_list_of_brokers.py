"""The question for the brokers' own list over HTTP: what counts as a list, and where the credentials go."""

from typing import Any

import pytest
from aiohttp import web

from proxy.auth.identity import AuthData
from proxy.auth.own.broker_credentials import Plain
from proxy.brokers.admin_port import AdminPort, AdminRefused, AdminUnavailable
from proxy.brokers.list_question import LARGEST_ANSWER_BYTES, MOST_HOSTS, PATH, ListQuestion
from tests.support.sockets.ports import free_port
from tests.support.web.connectors import load_connector
from tests.support.web.fake_web_broker import fake_web_broker

TOO_MANY = b'["a:1"' + b',"a:1"' * MOST_HOSTS + b"]"
OWN = Plain(lambda: AuthData("token", b"own"))


async def test_hosts_are_read_without_their_web_ports() -> None:
    async with fake_web_broker() as broker:
        broker.brokers = ["Broker-1:8080", "10.0.0.1:8080", "[::1]:8080", "::2:8080", "no-port", "", "x" * 300 + ":1"]
        found = await ListQuestion((broker.url + "/",), "", AdminPort(OWN, None, load_connector)).ask()
        assert found == {"broker-1", "10.0.0.1", "::1", "::2"}
        assert [asked.path for asked in broker.list_questions] == [PATH]
        assert broker.list_questions[0].header("Authorization") == "Bearer own"


async def test_older_brokers_are_asked_for_the_list_of_the_cluster() -> None:
    async def of_the_cluster(_: web.BaseRequest) -> web.StreamResponse:
        return web.json_response(["broker-1:8080"])

    async with fake_web_broker(of_the_cluster) as broker:
        broker.brokers = 404
        assert await ListQuestion((broker.url,), "my cluster", AdminPort(OWN, None, load_connector)).ask() == {
            "broker-1"
        }
        assert [asked.path for asked in broker.asked] == [f"{PATH}/my%20cluster"]
        with pytest.raises(AdminUnavailable, match="got status 404"):
            await ListQuestion((broker.url,), "", AdminPort(OWN, None, load_connector)).ask()


@pytest.mark.parametrize("status", [401, 403])
async def test_a_role_that_may_not_read_is_told_apart(status: int) -> None:
    async with fake_web_broker() as broker:
        broker.brokers = status
        with pytest.raises(AdminRefused, match=f"got status {status}"):
            await ListQuestion((broker.url,), "", AdminPort(OWN, None, load_connector)).ask()


async def test_a_redirect_is_not_followed_with_the_credentials() -> None:
    async def away(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": f"{elsewhere.url}/list"})

    async with fake_web_broker() as elsewhere, fake_web_broker(away) as broker:
        broker.brokers = 404
        with pytest.raises(AdminUnavailable, match="got status 307"):
            await ListQuestion((broker.url,), "cluster", AdminPort(OWN, None, load_connector)).ask()
        assert elsewhere.asked == []


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{}",
        b"[1]",
        b"[[" * 50_000,
        b"\xff",
        b" " * (LARGEST_ANSWER_BYTES + 1),
        TOO_MANY,
    ],
    ids=["empty", "object", "numbers", "deep", "bytes", "too long", "too many"],
)
async def test_what_is_no_list_is_none(answer: bytes) -> None:
    async def odd(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=answer)

    async with fake_web_broker(odd) as broker:
        broker.brokers = 404
        with pytest.raises(AdminUnavailable):
            await ListQuestion((broker.url,), "cluster", AdminPort(OWN, None, load_connector)).ask()


async def test_another_service_is_asked_if_one_is_down() -> None:
    async with fake_web_broker() as broker:
        broker.brokers = ["broker-1:8080"]
        urls: Any = (f"http://127.0.0.1:{free_port()}", broker.url)
        question = ListQuestion(urls, "", AdminPort(OWN, None, load_connector))
        assert await question.ask() == {"broker-1"}
    with pytest.raises(AdminUnavailable) as failed:
        await question.ask()
    assert "own" not in str(failed.value)
