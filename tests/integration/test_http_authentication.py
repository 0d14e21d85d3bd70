"""Who may use the web ports when clients are authenticated, and as whom they reach a broker."""

import base64
from contextlib import AbstractAsyncContextManager
from itertools import product
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from proxy.auth.identity import Authenticated, AuthenticationFailed
from proxy.web.http import renderings
from tests.support.proxies.counted import counted, counted_by
from tests.support.web.fake_web_broker import FakeWebBroker, echoed, fake_web_broker, redirect_to
from tests.support.web.web_stage import ADMIN, WebStage, web_staged

OWN = {"brokerClientAuthenticationPlugin": "token", "brokerClientAuthenticationParameters": "token:own"}
TOKEN = {"Authorization": "Bearer alice-token"}
PASSWORD = {"Authorization": "Basic " + base64.b64encode(b"bob:pass").decode()}


class Roles:
    """Know two clients: tokens of alice's, which may end, and bob's password; and maybe anybody without credentials."""

    def __init__(self, *, anonymous: bool = True, expires_at: float | None = None) -> None:
        self._anonymous = anonymous
        self._expires_at = expires_at

    def user_to_check(self, method: str, data: bytes) -> str | None:
        return None

    async def authenticate(self, method: str, data: bytes, certificate: bytes | None, network: str) -> Authenticated:
        if (method, data) == ("token", b"alice-token"):
            return Authenticated("alice", self._expires_at)
        if (method, data) == ("basic", b"bob:pass"):
            return Authenticated("bob")
        if method == "none" and self._anonymous:
            return Authenticated("anonymous")
        raise AuthenticationFailed("unknown")


STRICT = Roles(anonymous=False)


def guarded(roles: Any = None, **keys: Any) -> AbstractAsyncContextManager[WebStage]:
    return web_staged(role_finder=roles or Roles(), authenticationEnabled="true", **keys)


async def test_the_role_is_told_to_the_broker_beside_the_client_s_own_credentials() -> None:
    async with guarded(STRICT) as at:
        for headers in (TOKEN, PASSWORD):
            claimed = {**headers, "X-Original-Principal": "admin"}
            assert (await at.ask(headers=claimed)).status == 200
        found = introductions(at.broker)
        assert [role for role, _ in found] == ["alice", "bob"]
        assert found[0][1] == TOKEN["Authorization"]


@pytest.mark.parametrize("header", ["Bearer  alice-token", "Bearer \t alice-token", "bearer alice-token"])
async def test_white_space_around_a_token_is_not_passed_on(header: str) -> None:
    async with guarded(STRICT) as at:
        assert (await at.ask(headers={"Authorization": header})).status == 200
        scheme = header.partition(" ")[0]
        assert [asked.header("Authorization") for asked in at.broker.asked] == [f"{scheme} alice-token"]


@pytest.mark.threat("pages-for-anybody")
@pytest.mark.parametrize(
    "header", [None, "Bearer wrong", "Bearer\talice-token", "Bearer alice- token", "Negotiate x", "Bearer", "Basic !!!"]
)
async def test_who_proves_nothing_is_told_so_and_no_broker_is_asked(header: str | None) -> None:
    async with guarded(STRICT) as at:
        headers = {} if header is None else {"Authorization": header}
        for method, path in product(("GET", "OPTIONS"), (ADMIN, "/metrics", "/config")):
            answer = await at.ask(path, method=method, headers=headers)
            assert answer.status == 401
            assert answer.headers.getall("WWW-Authenticate") == ["Bearer", "Basic"]
            text = answer.text
            assert text.startswith('{"reason": "failed to authenticate: ')
            assert "wrong" not in text
        for method, path in product(("GET", "OPTIONS"), ("/healthz", "/readyz", "/status.html")):
            assert (await at.ask(path, method=method, headers=headers)).status == 200
        assert at.broker.asked == []


async def test_metrics_may_be_open_to_all() -> None:
    async with guarded(STRICT, authenticateMetricsEndpoint="false") as at:
        assert (await at.ask("/metrics")).status == 200


@pytest.mark.threat("pages-for-anybody")
@pytest.mark.parametrize("authorized", ["true", "false"])
async def test_pages_that_are_kept_are_for_roles_and_with_authorization_for_superusers(
    monkeypatch: pytest.MonkeyPatch, authorized: str
) -> None:
    monkeypatch.setattr(renderings, "KEEP_SECONDS", 60.0)
    keys = {"authorizationEnabled": authorized, "superUserRoles": "admin,bob"}
    async with guarded(STRICT, **keys) as at:
        for headers, status in (PASSWORD, 200), ({}, 401), (TOKEN, 403 if authorized == "true" else 200):
            for path in ("/config", "/proxy-stats/connections") * 2:
                assert (await at.ask(path, headers=headers)).status == status


async def test_the_proxy_shows_its_own_credentials_only_for_a_role_without_a_header() -> None:
    async with guarded(**OWN) as at:
        for headers in ({}, TOKEN):
            assert (await at.ask(headers=headers)).status == 200
        assert introductions(at.broker) == [("anonymous", "Bearer own"), ("alice", "Bearer alice-token")]
    async with web_staged(**OWN) as at:
        # Nobody is authenticated: a broker would take anybody for the proxy.
        assert (await at.ask()).status == 200
        assert at.broker.asked[0].header("Authorization") is None


async def test_lists_are_charged_to_the_role() -> None:
    async with guarded(topicListFairness="principal") as at:
        assert (await at.ask("/admin/v2/persistent/demo/ns", headers=TOKEN)).status == 200
        # It is charged when its memory is given back, behind the last byte.
        await at.stage.until(lambda: at.stage.proxy.reports.usage.top(5).principals, "somebody who is charged")
        assert [usage.name for usage in at.stage.proxy.reports.usage.top(5).principals] == ["alice"]


# --- whom the proxy introduces itself to ----------------------------------------------------------

WEBSOCKET = "/ws/v2/producer/persistent/t/n/topic"


def introductions(server: FakeWebBroker) -> list[tuple[str | None, str | None]]:
    return [(asked.header("X-Original-Principal"), asked.header("Authorization")) for asked in server.asked]


def extra_route(to: FakeWebBroker) -> dict[str, str]:
    return {"httpReverseProxy.other.path": "/other", "httpReverseProxy.other.proxyTo": to.url}


async def refused_socket(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(status=403)


@pytest.mark.threat("proxy-credentials-extra-route")
async def test_servers_of_extra_routes_get_neither_own_credentials_nor_the_role() -> None:
    async with fake_web_broker() as other:
        async with guarded(**OWN, **extra_route(other)) as at:
            for headers in ({}, TOKEN):
                assert (await at.ask("/other/x", headers=headers)).status == 200
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await at.client.ws_connect(at.url + "/other/ws")
        assert introductions(other) == [(None, None), (None, "Bearer alice-token"), (None, None)]


@pytest.mark.threat("websocket-as-proxy")
@pytest.mark.parametrize("path", [WEBSOCKET, "/ws;a/v2/x", ADMIN])
async def test_a_websocket_never_has_the_rights_of_the_proxy(path: str) -> None:
    # The brokers' service of WebSockets knows nothing of X-Original-Principal.
    async with guarded(**OWN) as at:
        with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
            await at.client.ws_connect(at.url + path)
        if path != ADMIN:
            answer = await at.ask(path)
            assert (answer.status, "authorization header" in answer.text) == (401, True)
        assert introductions(at.broker) == []
        at.broker.answer = refused_socket
        for headers, query in ((TOKEN, ""), ({}, "?token=alice-token")):
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await at.client.ws_connect(at.url + path + query, headers=headers)
        assert introductions(at.broker) == [("alice", "Bearer alice-token"), ("alice", None)]


@pytest.mark.parametrize("path", [WEBSOCKET, ADMIN, "/metrics"])
async def test_a_token_in_the_query_is_that_of_the_client(path: str) -> None:
    # A browser's WebSocket has no other place for it; the Java proxy takes it for each path.
    async with guarded(STRICT) as at:
        # The query is passed on as it is, so brokers would read another token than the one with white space stripped.
        for token, status in (("alice-token", 200), ("of-nobody", 401), ("", 401), ("alice-token%0A", 400)):
            assert ((await at.ask(f"{path}?token={token}")).status, token) == (status, token)
        assert [role for role, _ in introductions(at.broker)] == ["alice"][: path != "/metrics"]


async def test_a_query_of_an_extra_route_is_its_server_s_own_affair() -> None:
    async with fake_web_broker() as other, guarded(**extra_route(other)) as at:
        assert (await at.ask("/other/x?token=of-nobody")).status == 200
        assert other.asked[0].path == "/x?token=of-nobody"


async def test_a_redirect_of_a_broker_takes_the_introduction_to_another_broker() -> None:
    async with fake_web_broker() as owner:
        async with guarded(**OWN, brokerWebServiceAllowedTargetPorts=owner.port) as at:
            at.broker.answer = redirect_to(owner.url + ADMIN)
            assert (await at.ask()).status == 200
        assert introductions(owner) == [("anonymous", "Bearer own")]


@pytest.mark.threat("lookups-of-no-broker")
async def test_a_redirect_of_an_extra_route_s_server_takes_no_credentials_of_the_proxy_along() -> None:
    async with fake_web_broker() as other, fake_web_broker() as foreign:
        keys = {**OWN, **extra_route(other), "brokerWebServiceAllowedTargetPorts": foreign.port}
        async with guarded(**keys) as at:
            at.broker.answer = redirect_to(other.url + ADMIN)
            other.answer = redirect_to(foreign.url + ADMIN)
            answer = await at.ask()
            assert answer.status == 502
            assert "does not know the broker" in answer.text
            withheld = counted_by(at.stage.proxy.counters, "credentials_withheld")
            assert withheld == {"relay": 0, "redirect": 0, "http": 1}
            # With credentials of the client's own there are none of the proxy to withhold.
            assert (await at.ask(headers=TOKEN)).status == 200
        assert introductions(other) == [(None, None), (None, "Bearer alice-token")]
        # Nor of the client's own: the server that names the foreign one is no broker.
        assert introductions(foreign) == [(None, None)]


@pytest.mark.threat("client-credentials-redirected")
async def test_a_redirect_of_an_extra_route_s_server_takes_credentials_of_the_client_to_its_own_origin_only() -> None:
    async with fake_web_broker() as other, fake_web_broker() as foreign:
        keys = {**extra_route(other), "brokerWebServiceAllowedTargetPorts": foreign.port}
        async with guarded(**keys) as at:

            async def first_to_itself(request: web.BaseRequest) -> web.StreamResponse:
                to = foreign.url if request.path == "/again" else other.url
                return web.Response(status=302, headers={"Location": f"{to}/again"})

            # Only a broker's redirect to such a server is followed on from there.
            at.broker.answer = redirect_to(other.url + ADMIN)
            other.answer = first_to_itself
            claims = {"X-Pulsar-Auth-Method-Name": "token", "X-Original-Client": "a", "Cookie": "a=b", "X-Kept": "yes"}
            assert (await at.ask(headers=TOKEN | claims)).status == 200
        assert introductions(other) == [(None, "Bearer alice-token")] * 2
        assert introductions(foreign) == [(None, None)]
        assert [foreign.asked[0].header(name) for name in claims] == [None, None, None, "yes"]


async def test_two_authorization_headers_are_refused() -> None:
    async with guarded() as at:
        twice = "Authorization: Bearer alice-token\r\nAuthorization: Bearer alice-token\r\n"
        for path in (ADMIN, "/config"):
            assert await at.status_of(f"GET {path} HTTP/1.1\r\nHost: p\r\nConnection: close\r\n{twice}\r\n") == 400
        assert at.broker.asked == []


@pytest.mark.threat("expired-websocket")
async def test_a_websocket_ends_when_the_credentials_of_its_client_have_expired() -> None:
    async with guarded(Roles(expires_at=1000.0), authenticationRefreshCheckSeconds=1) as at:
        at.broker.answer = echoed
        clock, looks = [999.0], []
        clients = at.stage.proxy.identities.clients
        assert clients is not None

        def now() -> float:
            looks.append(clock[0])
            return clock[0]

        clients.now = now
        url = at.url + "/ws/v2/producer/persistent/t/n/x"
        async with at.client.ws_connect(url, headers=TOKEN) as mortal, at.client.ws_connect(url) as immortal:
            await at.stage.until(lambda: len(looks) > 1, "a look at the credentials")
            for socket in (mortal, immortal):
                await socket.send_bytes(b"a")
                assert (await socket.receive_bytes()) == b"a"
            clock[0] = 1000.0
            assert (await mortal.receive()).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
            assert at.stage.caused("credentials_expired") == 1
            await immortal.send_bytes(b"b")
            assert (await immortal.receive_bytes()) == b"b"
        await at.stage.until(lambda: not counted(at.stage.proxy.counters, "http_tunnels"), "no tunnel left")


async def test_a_broker_that_gets_credentials_of_anybody_hears_of_no_host_that_the_client_claims() -> None:
    claims = {"X-Forwarded-Port": "8080", "Forwarded": "host=evil.example", "X-Forwarded-Server": "evil.example"}
    async with guarded(**OWN) as at:
        for headers in (claims, claims | TOKEN):
            assert (await at.ask(headers=headers)).status == 200
        for asked in at.broker.asked:
            assert [asked.header(name) for name in (*claims, "X-Forwarded-Host")] == [None] * 4
