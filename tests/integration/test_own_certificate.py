"""When a broker's web service is shown the certificate of the proxy, which would be the client's credential there."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.support.auth.credentials import Judge
from tests.support.auth.tls import PemFiles, authority, server_context
from tests.support.auth.tls_settings import broker_store_keys, write_store
from tests.support.web.fake_web_broker import fake_web_broker
from tests.support.web.web_stage import ADMIN, web_staged

AUTHENTICATES = {"authenticationEnabled": "true"}
TOKEN = {"Authorization": "Bearer alice"}
WEBSOCKET = "/ws/v2/producer/persistent/t/n/topic"
DEMANDS = "brokers are not shown that of the proxy for a client without a role (authenticationEnabled)"


@dataclass
class TlsWebService:
    """A broker's web service that keeps what certificate and what role came with each request."""

    url: str
    seen: list[tuple[bool, str | None]]


@asynccontextmanager
async def tls_web_service(verify: ssl.VerifyMode = ssl.CERT_OPTIONAL) -> AsyncIterator[TlsWebService]:
    seen: list[tuple[bool, str | None]] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        certificate = request.transport.get_extra_info("ssl_object").getpeercert()
        seen.append((bool(certificate), request.headers.get("X-Original-Principal")))
        return web.Response(body=b"ok")

    context = server_context(clients_from="first")
    context.verify_mode = verify
    server = web.Server(handle, access_log=None)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, ssl=context)
    try:
        yield TlsWebService(f"https://localhost:{listening.sockets[0].getsockname()[1]}", seen)
    finally:
        listening.close()
        await server.shutdown(0.1)
        await listening.wait_closed()


def keys(directory: Path, service: TlsWebService, kind: str) -> dict[str, Any]:
    """Return the keys of a proxy with a certificate of its own: of the plugin, or beside a token, or in a store."""
    own = PemFiles.write(directory, own=authority().issue_cert("proxy.example"))
    given = {"brokerWebServiceURLTLS": service.url, **own.broker_keys}
    if kind == "plugin":
        shown = f"tlsCertFile:{own.certificate},tlsKeyFile:{own.key}"
        # The certificate of the plugin goes before the other.
        given["brokerClientCertificateFilePath"] = given["brokerClientKeyFilePath"] = "/no/such"
        return given | {"brokerClientAuthenticationPlugin": "tls", "brokerClientAuthenticationParameters": shown}
    files = {"brokerClientCertificateFilePath": own.certificate, "brokerClientKeyFilePath": own.key}
    if kind == "a store":
        trust = write_store(directory / "trust.p12", trusted=(authority(),))
        files = broker_store_keys(trust, write_store(directory / "own.p12", authority().issue_cert("proxy.example")))
    token = {"brokerClientAuthenticationPlugin": "token", "brokerClientAuthenticationParameters": "token:own"}
    # Else the proxy asks for the list of the brokers, on its own account.
    return given | files | token | {"brokerProxyCredentialsToAnyTarget": "true"}


@pytest.mark.threat("certificate-rights-borrowed")
@pytest.mark.parametrize("kind", ["plugin", "beside a token", "a store"])
async def test_a_client_without_a_role_has_no_rights_of_the_certificate(tmp_path: Path, kind: str) -> None:
    async with tls_web_service() as service, web_staged(**keys(tmp_path, service, kind)) as at:
        for method in ("GET", "DELETE"):
            for headers in ({}, TOKEN):
                async with at.client.request(method, at.url + ADMIN, headers=headers) as answer:
                    assert answer.status == 200
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await at.client.ws_connect(at.url + WEBSOCKET)
        assert service.seen == [(False, None)] * 5


@pytest.mark.parametrize("kind", ["plugin", "beside a token", "a store"])
async def test_the_certificate_is_shown_beside_the_role_of_the_client(tmp_path: Path, kind: str) -> None:
    async with (
        tls_web_service() as service,
        web_staged(role_finder=Judge(), **AUTHENTICATES, **keys(tmp_path, service, kind)) as at,
    ):
        async with at.client.get(at.url + ADMIN, headers=TOKEN) as answer:
            assert answer.status == 200
        assert service.seen == [(True, "alice")]


@pytest.mark.threat("certificate-rights-borrowed")
@pytest.mark.parametrize("kind", ["plugin", "a store"])
async def test_where_a_certificate_is_demanded_the_refusal_names_the_key(tmp_path: Path, kind: str) -> None:
    async with (
        tls_web_service(ssl.CERT_REQUIRED) as service,
        web_staged(**keys(tmp_path, service, kind)) as at,
    ):
        async with at.client.delete(at.url + ADMIN) as answer:
            assert answer.status in (502, 503)
            assert DEMANDS in await answer.text()
        with pytest.raises(aiohttp.WSServerHandshakeError, match=r"50[23]"):
            await at.client.ws_connect(at.url + WEBSOCKET)
        assert service.seen == []


@pytest.mark.threat("certificate-rights-borrowed")
async def test_a_redirect_of_an_extra_route_s_server_does_not_take_the_certificate_to_brokers(tmp_path: Path) -> None:
    async with fake_web_broker() as other, tls_web_service() as service:
        other.answer = redirect_to(service.url)
        route = {"httpReverseProxy.other.path": "/other", "httpReverseProxy.other.proxyTo": other.url}
        given = keys(tmp_path, service, "plugin") | AUTHENTICATES | route
        async with (
            web_staged(role_finder=Judge(), **given) as at,
            at.client.get(at.url + "/other/x", headers=TOKEN, allow_redirects=False) as answer,
        ):
            assert (answer.status, answer.headers["Location"]) == (307, service.url + ADMIN)
        assert service.seen == []


def redirect_to(url: str) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    async def redirect(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": url + ADMIN})

    return redirect
