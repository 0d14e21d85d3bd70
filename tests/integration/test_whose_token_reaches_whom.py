"""No token of a client reaches a listener that no broker and no configuration named, whatever the own plugin is."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from protocol.errors import ServerError
from proxy.core.public_causes import TARGET_TEXT
from tests.support.auth.credentials import Court, court, presenting
from tests.support.auth.tls import PemFiles
from tests.support.brokers.judging_broker import TalkingBroker
from tests.support.brokers.raw_broker import CONNECTED, raw_broker
from tests.support.proxies.proxy_under_test import TOPIC
from tests.support.web.fake_web_broker import FakeWebBroker, fake_web_broker, redirect_to

OWN = "the-proxys-own-secret"
ALICE = "alice/token-of-alice"
HEADERS = {"Authorization": f"Bearer {ALICE}"}
ADMIN, LOOKUP = "/admin/v2/clusters", "/lookup/v2/topic/persistent/t/n/topic"
SOCKET, THIRD = "/ws/v2/producer/persistent/t/n/topic", "/third"
PLUGINS = ("", "token", "basic", "tls", "oauth2")


@asynccontextmanager
async def issuer() -> AsyncIterator[str]:
    """Give the proxy its token of OAuth 2.0, and yield the issuer's URL."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response({"token_endpoint": f"{found.url}/token"})
        return web.json_response({"access_token": OWN, "expires_in": 3600})

    async with fake_web_broker(answer) as found:
        yield found.url


@asynccontextmanager
async def own(plugin: str, directory: Path) -> AsyncIterator[dict[str, str]]:
    """Yield the keys of the proxy's own credentials."""
    files = PemFiles.write(directory)
    async with issuer() as url:
        key = directory / "issuer.json"
        key.write_text(json.dumps({"client_id": "proxy", "client_secret": "s"}))
        parameters = {
            "": "",
            "token": f"token:{OWN}",
            "basic": json.dumps({"userId": "proxy", "password": OWN}),
            "tls": f"tlsCertFile:{files.certificate},tlsKeyFile:{files.key}",
            "oauth2": json.dumps({"issuerUrl": url, "privateKey": f"file://{key}", "audience": "a"}),
        }[plugin]
        yield {"brokerClientAuthenticationPlugin": plugin, "brokerClientAuthenticationParameters": parameters}


@dataclass
class Listener:
    """Somebody's own server, of whatever protocol is spoken to it; it keeps every byte."""

    port: int = 0
    heard: bytearray = field(default_factory=bytearray)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65_536):
            self.heard += piece
            is_http = b" HTTP/1.1\r\n" in piece
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" if is_http else CONNECTED)
        writer.close()


@dataclass
class Town:
    """A proxy, its broker, the broker's web service, a server of `httpReverseProxy`, and somebody's listener."""

    held: Court
    broker: TalkingBroker
    service: FakeWebBroker
    third: FakeWebBroker
    listener: Listener

    @property
    def place(self) -> str:
        """Return the listener's host, not that of any other server here, and its port."""
        return f"localhost:{self.listener.port}"

    async def get(self, path: str, *, in_query: bool = False, **headers: str) -> int:
        url = f"http://127.0.0.1:{self.held.stage.proxy.web_port}{path}{f'?token={ALICE}' if in_query else ''}"
        given = headers if in_query else HEADERS | headers
        async with aiohttp.ClientSession() as http, http.get(url, headers=given) as answer:
            await answer.read()
            return answer.status

    async def open_socket(self, path: str) -> None:
        url = f"http://127.0.0.1:{self.held.stage.proxy.web_port}{path}"
        async with aiohttp.ClientSession() as http:
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await http.ws_connect(url, headers=HEADERS)

    async def is_refused(self) -> None:
        """Name the listener in CONNECT."""
        client = await self.held.stage.client()
        await client.send(presenting(ALICE, target=self.place))
        told = (await client.command()).error
        assert (told.error, told.message) == (ServerError.ServiceNotReady, TARGET_TEXT)

    async def to_the_claimed_host(self, request: web.BaseRequest) -> web.StreamResponse:
        """Redirect to the host that a request claims, with its query, as brokers may; 404 for any other host."""
        host = next((value for value in request.headers.values() if value.endswith(self.place)), request.host)
        claims = 307 if host.endswith(self.place) else 404
        return web.Response(status=claims, headers={"Location": f"http://{host}{request.raw_path}"})

    def names(self, server: FakeWebBroker) -> None:
        """Have a web server answer lookups with the listener."""

        async def answer(_: web.BaseRequest) -> web.StreamResponse:
            url = f"pulsar://{self.place}"
            return web.Response(body=json.dumps({"brokerUrl": url, "nativeUrl": url}).encode())

        server.answer = answer


@asynccontextmanager
async def town(plugin: str, directory: Path, **keys: Any) -> AsyncIterator[Town]:
    broker, listener = TalkingBroker(), Listener()
    async with AsyncExitStack() as stack:
        listening = await stack.enter_async_context(await asyncio.start_server(listener.serve, "localhost", 0))
        listener.port = listening.sockets[0].getsockname()[1]
        brokers = await stack.enter_async_context(raw_broker(broker.serve))
        broker.url = f"pulsar://127.0.0.1:{brokers.port}"
        service, third = [await stack.enter_async_context(fake_web_broker()) for _ in range(2)]
        keys = {
            **await stack.enter_async_context(own(plugin, directory)),
            "brokerWebServiceURL": service.url,
            "brokerWebServiceAllowedTargetPorts": "*",
            "httpReverseProxy.third.path": THIRD,
            "httpReverseProxy.third.proxyTo": third.url,
            **keys,
        }
        held = await stack.enter_async_context(court(broker_port=brokers.port, **keys))
        yield Town(held, broker, service, third, listener)


async def named_by_the_client(at: Town) -> None:
    await at.is_refused()


async def named_by_a_third_server(at: Town) -> None:
    at.names(at.third)
    assert await at.get(THIRD + LOOKUP) == 200
    await at.is_refused()


async def named_by_a_third_server_that_a_broker_redirects_to(at: Town) -> None:
    at.names(at.third)
    at.service.answer = redirect_to(at.third.url + LOOKUP)
    assert await at.get(LOOKUP) == 200
    await at.is_refused()


async def claimed_over_http(at: Town) -> None:
    at.service.answer = at.to_the_claimed_host
    for path in (LOOKUP, ADMIN):
        for claim in ("X-Forwarded-Host", "Host", "X_Forwarded_Host", "Forwarded"):
            for in_query in (False, True):
                assert await at.get(path, in_query=in_query, **{claim: at.place}) == 404
    await at.is_refused()


async def claimed_before_a_third_server_that_a_broker_redirects_to(at: Town) -> None:
    at.third.answer = at.to_the_claimed_host
    for in_query in (False, True):
        at.service.answer = redirect_to(f"{at.third.url}{ADMIN}{f'?token={ALICE}' if in_query else ''}")
        await at.get(ADMIN, in_query=in_query, Host=at.place)


async def redirected_by_a_third_server(at: Town) -> None:
    for status in (301, 302, 303, 307, 308):
        at.third.answer = redirect_to(f"http://{at.place}{ADMIN}", status)
        await at.get(THIRD)


async def redirected_by_a_third_server_that_a_broker_redirects_to(at: Town) -> None:
    at.service.answer = redirect_to(at.third.url + ADMIN)
    at.third.answer = redirect_to(f"http://{at.place}{ADMIN}")
    await at.get(ADMIN)


async def opening_of_a_websocket_redirected_by_a_broker(at: Town) -> None:
    at.service.answer = redirect_to(f"http://{at.place}{SOCKET}")
    await at.open_socket(SOCKET)


async def opening_of_a_websocket_redirected_by_a_third_server(at: Town) -> None:
    at.third.answer = redirect_to(f"http://{at.place}{SOCKET}")
    await at.open_socket(THIRD)


WAYS: tuple[Callable[[Town], Awaitable[None]], ...] = (
    named_by_the_client,
    named_by_a_third_server,
    named_by_a_third_server_that_a_broker_redirects_to,
    claimed_over_http,
    claimed_before_a_third_server_that_a_broker_redirects_to,
    redirected_by_a_third_server,
    redirected_by_a_third_server_that_a_broker_redirects_to,
    opening_of_a_websocket_redirected_by_a_broker,
    opening_of_a_websocket_redirected_by_a_third_server,
)


@pytest.mark.threat("credentials-past-the-gate")
@pytest.mark.threat("token-to-foreign-host")
@pytest.mark.threat("claimed-host-in-lookup")
@pytest.mark.threat("lookups-of-no-broker")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("plugin", PLUGINS)
async def test_no_token_reaches_a_listener_that_no_broker_and_no_configuration_named(
    plugin: str, way: Callable[[Town], Awaitable[None]], tmp_path: Path
) -> None:
    async with town(plugin, tmp_path) as at:
        await way(at)
        for secret in (ALICE, OWN):
            assert secret.encode() not in at.listener.heard


@pytest.mark.parametrize("plugin", PLUGINS)
async def test_the_token_of_a_client_reaches_brokers_and_configured_servers(plugin: str, tmp_path: Path) -> None:
    async with town(plugin, tmp_path) as at:
        await (await at.held.client(ALICE)).lookup(TOPIC)
        await at.held.client(ALICE, target=at.broker.url.removeprefix("pulsar://"))
        assert [each.original_auth_data for each in at.broker.connects] == [ALICE, ALICE]
        assert [await at.get(path) for path in (ADMIN, THIRD)] == [200, 200]
        await at.open_socket(SOCKET)
        for asked in (*at.service.asked, *at.third.asked):
            assert asked.header("Authorization") == HEADERS["Authorization"]
        # A broker that names the listener has made it a broker.
        at.broker.url = f"pulsar://{at.place}"
        await (await at.held.client(ALICE)).lookup(TOPIC)
        await at.held.client(ALICE, target=at.place)
        assert ALICE.encode() in at.listener.heard


@pytest.mark.parametrize("plugin", PLUGINS)
async def test_every_target_gets_the_token_where_that_is_configured_and_where_none_is_forwarded_no_gate_is(
    plugin: str, tmp_path: Path
) -> None:
    any_target: dict[str, Any] = {"brokerProxyCredentialsToAnyTarget": "true"}
    async with town(plugin, tmp_path, **any_target) as at:
        await at.held.client(ALICE, target=at.place)
        assert ALICE.encode() in at.listener.heard
    async with town(plugin, tmp_path, forwardAuthorizationCredentials="false") as at:
        if plugin in ("", "tls"):
            await at.held.client(ALICE, target=at.place)
        else:
            await at.is_refused()
        assert ALICE.encode() not in at.listener.heard
