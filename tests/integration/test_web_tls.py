"""The web port with TLS, towards clients and towards brokers, and behind a balancer that says whom it stands for."""

import asyncio

import aiohttp
import pytest

from tests.support.auth.tls import PemFiles, TlsClient, authority, certificate, client_context, server_context
from tests.support.clients.async_client import AsyncClient
from tests.support.patience import in_time
from tests.support.proxies.proxy_under_test import kept_log
from tests.support.web.fake_web_broker import FakeWebBroker, echoed, fake_web_broker
from tests.support.web.web_stage import ADMIN, WebStage, web_staged


def web_keys(files: PemFiles) -> dict[str, str]:
    return {
        "webServicePortTls": "0", "tlsCertificateFilePath": str(files.certificate), "tlsKeyFilePath": str(files.key),
        "tlsTrustCertsFilePath": str(files.trust),
    }  # fmt: skip


def tls_port(at: WebStage) -> int:
    web = at.stage.proxy.web
    assert web is not None
    assert web.tls_port is not None
    return web.tls_port


async def test_requests_over_tls_are_passed_on_and_say_so(files: PemFiles) -> None:
    async with web_staged(**web_keys(files)) as at:
        url = f"https://localhost:{tls_port(at)}{ADMIN}"
        async with at.client.get(url, ssl=client_context()) as answer:
            assert await answer.read() == b'["ok"]'
        assert at.broker.asked[0].header("X-Forwarded-Proto") == "https"
        with pytest.raises(aiohttp.ClientError):
            await at.client.get(url.replace("https", "http"))


async def test_a_tls_fault_behind_the_handshake_is_counted_and_told(
    files: PemFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = kept_log(monkeypatch)
    async with web_staged(**web_keys(files)) as at, in_time():
        plain = await AsyncClient.open(tls_port(at))
        client = await TlsClient(plain.sock, client_context()).shake()
        await client.send(b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await client.receive(9) == b"HTTP/1.1 "
        # A record of nobody who knows the keys.
        await AsyncClient.send(client, b"\x17\x03\x03\x00\x40" + bytes(64))
        await at.stage.until(lambda: at.stage.caused("tls_error") == 1, "an end that is counted")
        client.close()
    (line,) = log.of("client disconnected")
    assert (line["cause"], line["detail"]) == ("tls_error", "a record of the client cannot be decrypted")
    assert line["client"] == "127.0.0.1"


async def test_a_client_s_certificate_is_its_credential(files: PemFiles) -> None:
    keys = web_keys(files) | {"authenticationEnabled": "true", "authenticationProviders": "tls"}
    async with web_staged(**keys) as at:
        url = f"https://localhost:{tls_port(at)}{ADMIN}"
        for own, status in ((None, 401), (authority().issue_cert("any.example", common_name="alice"), 200)):
            connector = aiohttp.TCPConnector(ssl=client_context(own=own))
            async with aiohttp.ClientSession(connector=connector) as client, client.get(url) as answer:
                assert answer.status == status
        assert [asked.header("X-Original-Principal") for asked in at.broker.asked] == ["alice"]


def to_brokers(files: PemFiles, broker: FakeWebBroker) -> dict[str, str]:
    return {**files.broker_keys, "brokerWebServiceURLTLS": f"https://localhost:{broker.port}"}


@pytest.mark.parametrize(("names", "status"), [((), 200), (("elsewhere.example",), 503)])
async def test_brokers_are_asked_over_tls_and_must_be_who_they_say(
    files: PemFiles, names: tuple[str, ...], status: int
) -> None:
    tls = server_context(certificate("first", *names))
    async with fake_web_broker(tls=tls) as broker, web_staged(**to_brokers(files, broker)) as at:
        assert (await at.ask()).status == status


async def test_a_large_message_of_a_websocket_goes_over_tls_and_comes_back(files: PemFiles) -> None:
    url = "/ws/v2/producer/persistent/t/n/topic"
    async with (
        fake_web_broker(echoed, tls=server_context()) as broker,
        web_staged(**to_brokers(files, broker)) as at,
        in_time(),
        at.client.ws_connect(at.url + url, max_msg_size=0) as socket,
    ):
        await socket.send_bytes(b"x" * 300_000)
        assert len(await socket.receive_bytes()) == 300_000


async def test_a_balancer_s_word_on_the_client_is_taken_where_it_is_asked_for() -> None:
    request = f"GET {ADMIN} HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n".encode()
    async with web_staged(webServiceHaProxyProtocolEnabled="true") as at:
        answer = await at.raw(b"PROXY TCP4 192.0.2.7 192.0.2.1 5555 80\r\n" + request)
        assert answer.startswith(b"HTTP/1.1 200 ")
        # Without a header in front, whatever letter the method begins with.
        for method in (b"GET", b"PUT", b"POST", b"PATCH", b"DELETE"):
            assert (await at.raw(request.replace(b"GET", method))).startswith(b"HTTP/1.1 200 ")
        with pytest.raises(ConnectionResetError):
            await at.raw(b"PROXY nonsense\r\n" + request)
        found = [asked.header("X-Forwarded-For") for asked in at.broker.asked]
        assert found == ["192.0.2.7", *["127.0.0.1"] * 5]


@pytest.mark.parametrize("method", [b"PUT", b"POST", b"PATCH"])
@pytest.mark.parametrize("header", [b"", b"PROXY TCP4 192.0.2.7 192.0.2.1 5555 80\r\n"], ids=["none", "v1"])
async def test_a_request_whose_first_byte_comes_alone_is_served_where_a_header_may_stand(
    method: bytes, header: bytes
) -> None:
    stream = header + method + f" {ADMIN} HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n".encode()
    async with web_staged(webServiceHaProxyProtocolEnabled="true") as at, in_time():
        reader, writer = await asyncio.open_connection("127.0.0.1", at.stage.proxy.web_port)
        writer.write(stream[:1])
        # Time for the proxy to read the byte; without it the test sees less, and fails no more often.
        await asyncio.sleep(0.05)
        writer.write(stream[1:])
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        assert [asked.method for asked in at.broker.asked] == [method.decode()]


@pytest.mark.parametrize("awaited", ["tls", "proxy header"])
async def test_a_client_that_does_not_come_to_http_is_closed(
    files: PemFiles, monkeypatch: pytest.MonkeyPatch, awaited: str
) -> None:
    monkeypatch.setattr("proxy.web.accept.HANDSHAKE_SECONDS", 0.05)
    header = {"webServiceHaProxyProtocolEnabled": "true"} if awaited == "proxy header" else {}
    async with web_staged(**web_keys(files), **header) as at:
        port = at.stage.proxy.web_port if header else tls_port(at)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with in_time():
            assert await reader.read() == b""
        writer.close()
