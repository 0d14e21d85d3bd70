"""HTTP requests that two servers could read differently: the proxy refuses them, and no broker sees them."""

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest
from aiohttp import web

from tests.support.auth.tokens import SECRET, data_url, signed
from tests.support.web.web_stage import ADMIN, WebStage, web_staged

TOKENS: dict[str, Any] = {
    "authenticationEnabled": "true",
    "authenticationProviders": "token",
    "tokenSecretKey": data_url(SECRET),
}


async def status(at: WebStage, path: str, host: str = "proxy") -> int:
    return await at.status_of(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")


@pytest.mark.threat("path-of-slashes")
async def test_a_path_of_thousands_of_slashes_is_refused_before_anybody_is_asked() -> None:
    async with web_staged() as at:
        for part in ("/", "/a", "/;a", "/%41"):
            assert await status(at, "/admin/v2" + part * 127) == 400, part
        assert at.broker.asked == []
        assert await status(at, "/admin/v2" + "/a" * 100) == 200


@pytest.mark.threat("path-read-otherwise")
async def test_a_path_that_a_server_reads_otherwise_reaches_none() -> None:
    async with web_staged() as at:
        for path in (
            "/admin/v2/a/../b", "/admin/v2/a/%2e%2E/b", "/admin/v2/a/%252e%252e/b", "/admin/v2/a/..;x/b",
            "/admin/v2/a/..%3b/b", "/admin/v2/a/..%253B/b", "/admin/v2/a/%00", "/admin/v2/a/\\..\\b",
            "/admin/v2%2fpersistent/t/n", "/admin/v2%252fpersistent/t/n", "/admin/v2/persistent/t%2Fn",
            "/admin/v2/persistent%3bx/t/n", "/admin/v2/persistent/t/n%2Fpartitioned",
            "/admin/v2/a/..%2fb", "/admin/v2/a/%2e%2e%3bx%2fb", "/admin/v2/a/b;%2f..%2f..%2fadmin",
            "/admin/v2/persistent/t%2Fn/x", "/admin/v3%2ffunctions/t/n/f", "/admin/persistent%2Ft/n",
            "/admin/v2/namespaces/t/n%2ftopics", "/admin/v2/namespaces/t/n/c%2ftopics", "admin",
            "/lookup/v2%2ftopic/persistent/t/n/x", "/lookup/v2/topic/persistent%2ft/n/x",
            "/lookup/v2/topic/persistent/t/n%2Fx",
        ):  # fmt: skip
            assert await status(at, path) == 400, path
        assert at.broker.asked == []
        # Names of topics and values may have any.
        for path in ("/admin/v2/persistent/t/n/a%2Fb%3B", "/admin/persistent/t/c/n/a%2Fb",
                     "/admin/v2/brokers/configuration/zookeeperServers/zk%3A2181%2Fpulsar"):  # fmt: skip
            assert await status(at, path) == 200, path


@pytest.mark.threat("malformed-host")
async def test_only_a_name_of_the_list_is_served_and_nothing_that_begins_like_one() -> None:
    async with web_staged(webServiceAllowedHosts="pulsar.example.org,*.inner.example") as at:
        for host in (
            "pulsar.example.org:80:evil", "pulsar.example.org:evil", "pulsar.example.org.evil.example", "evil.example",
            "[::1]evil", "[pulsar.example.org]", "10.0.0.1.evil.example", "inner.example", "localhost:80",
            "evil.example/", "10.0.0.1:80:evil", "[::1]:80:evil",
        ):  # fmt: skip
            assert await status(at, ADMIN, host) == 421, host
        assert at.broker.asked == []
        for host in (
            "PULSAR.example.org.:8080",
            "a.inner.example",
            "10.0.0.1:8080",
            "[::1]:8080",
            "pulsar.example.org:",
            "",
        ):
            assert await status(at, ADMIN, host) == 200, host


@pytest.mark.threat("role-changed-by-header")
async def test_a_role_that_a_header_would_change_reaches_no_broker() -> None:
    async with web_staged(**TOKENS) as at:
        for role in (
            " admin",
            "admin ",
            "admin\u3000",
            "\u00a0admin",
            "\tadmin",
            "admin\r",
            "\u00fcber",
            "admin\u4e2d",
        ):
            headers = {"Authorization": f"Bearer {signed({'sub': role}).decode()}"}
            async with at.client.get(at.url + ADMIN, headers=headers) as answer:
                # 400 where the reason is told: the token is good, and its role is not for HTTP.
                assert answer.status in {400, 401}, role
        assert at.broker.asked == []


@pytest.mark.threat("json-brackets")
async def test_an_answer_of_thousands_of_brackets_passes_as_it_is_and_breaks_nothing() -> None:
    deep = b'{"brokerUrl":"pulsar://b:6650","deep":' + b"[" * 15_000

    async def brackets(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=deep, content_type="application/json")

    async with web_staged() as at:
        at.broker.answer = brackets
        for _ in range(2):
            async with at.client.get(at.url + "/lookup/v2/topic/persistent/t/n/x") as answer:
                assert (answer.status, await answer.read()) == (200, deep)


@pytest.mark.threat("upgrade-smuggling")
@pytest.mark.parametrize("protocol", ["h2c", "h2c, websocket", "TLS/1.0"])
@pytest.mark.parametrize("body", ["", "Content-Length: 5\r\n"])
async def test_nothing_behind_a_request_for_another_protocol_is_a_request(protocol: str, body: str) -> None:
    async with web_staged() as at:
        method = "POST" if body else "GET"
        asks = f"{method} {ADMIN} HTTP/1.1\r\nHost: proxy\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n{body}\r\n"
        behind = f"GET {ADMIN}/evil HTTP/1.1\r\nHost: proxy\r\n\r\n"
        answer = await at.raw(asks.encode() + b"hello" * bool(body) + behind.encode() * 3)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert [asked.path for asked in at.broker.asked] == [ADMIN]


@pytest.mark.threat("parsed-requests-ahead")
async def test_heads_sent_ahead_stay_bytes() -> None:
    gate = asyncio.Event()

    async def held(_: web.BaseRequest) -> web.StreamResponse:
        await gate.wait()
        return web.Response()

    head = f"GET {ADMIN} HTTP/1.1\r\nHost: p\r\n\r\n".encode()
    async with web_staged() as at:
        at.broker.answer = held

        async def grown(ahead: int) -> int:
            """Return what 20 clients cost that have each sent so many requests behind the one in work."""
            before, asked = tracemalloc.get_traced_memory()[0], len(at.broker.asked)
            for _ in range(20):
                client = await at.stage.client(port=at.stage.proxy.web_port)
                await client.send(head * (1 + ahead))
            await at.stage.until(lambda: len(at.broker.asked) == asked + 20, "a request of each in work")
            gc.collect()
            return (tracemalloc.get_traced_memory()[0] - before) // 20

        tracemalloc.start()
        try:
            await grown(30)
            # A table of all clients that happens to grow is in one of the differences, not in both.
            more = min([await grown(30) - await grown(1) for _ in range(2)])
        finally:
            tracemalloc.stop()
            gate.set()
        # Parsed they are more than ten times as much.
        assert more < 2 * 29 * len(head)
