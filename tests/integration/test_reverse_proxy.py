"""Requests of the admin interface through a whole proxy: what reaches a broker, and what comes back."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from tests.support.patience import in_time, patient
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import staged
from tests.support.sockets.ports import free_port
from tests.support.web.fake_web_broker import fake_web_broker, fine, redirect_to, silent
from tests.support.web.web_stage import ADMIN, WebStage, web_staged

LIST = "/admin/v2/persistent/demo/ns"

# --- what passes ----------------------------------------------------------------------------------


async def test_method_path_query_and_body_reach_the_broker_as_they_were() -> None:
    seen = []

    async def echo(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(await request.read())
        return web.Response(status=202, body=b"done", headers={"X-Broker": "yes"})

    async with web_staged() as at:
        at.broker.answer = echo
        path = "/admin/v2/persistent/t/n/a%2Fb%20c?x=%7B&y=1"
        for method in ("POST", "OPTIONS"):
            answer = await at.ask(path, method=method, data=b"body")
            assert (answer.status, answer.headers["X-Broker"], answer.body) == (202, "yes", b"done")
        assert seen == [b"body"] * 2
        assert [(asked.method, asked.path) for asked in at.broker.asked] == [("POST", path), ("OPTIONS", path)]


@pytest.mark.threat("original-principal-header", "hop-by-hop-headers")
async def test_headers_of_one_connection_and_claims_of_the_client_end_here() -> None:
    async with web_staged() as at:
        headers = {
            "Authorization": "Bearer secret", "Connection": "X-Hop, keep-alive", "X-Hop": "1", "Cookie": "a=b",
            "X-Original-Principal": "admin", "X_Original_Principal": "admin", "Proxy-Authorization": "x",
            "TE": "trailers", "X-Kept": "2", "X-Forwarded-For": "10.1.1.1",
        }  # fmt: skip
        assert (await at.ask(headers=headers)).body == b'["ok"]'
        asked = at.broker.asked[0]
        assert asked.header("Authorization") == "Bearer secret"
        assert asked.header("X-Kept") == "2"
        assert asked.header("Host") == f"127.0.0.1:{at.broker.port}"
        assert asked.header("X-Forwarded-For") == "10.1.1.1, 127.0.0.1"
        gone = ("X-Hop", "Cookie", "X-Original-Principal", "X_Original_Principal", "Proxy-Authorization", "TE")
        assert [name for name in gone if asked.header(name) is not None] == []
        # Where no credentials could follow, a broker may know what its client asked for.
        async with at.client.get(at.url + ADMIN):
            assert at.broker.asked[-1].header("X-Forwarded-Host") == at.url.removeprefix("http://")


async def test_compressed_answers_and_head_requests_pass_unchanged() -> None:
    async def packed(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=b"\x1f\x8bpacked", headers={"Content-Encoding": "gzip", "Set-Cookie": "a=b"})

    async with web_staged() as at:
        at.broker.answer = packed
        answer = await at.ask()
        assert (answer.body, answer.headers["Content-Encoding"]) == (b"\x1f\x8bpacked", "gzip")
        assert "Set-Cookie" not in answer.headers
        assert answer.headers.getall("Server") == ["pulsar-proxy"]
        answer = await at.ask(method="HEAD")
        assert (answer.status, answer.headers["Content-Length"]) == (200, "8")


async def test_connections_to_client_and_broker_are_used_again() -> None:
    async with web_staged() as at:
        for _ in range(5):
            await at.ask()
        assert at.broker.connections == 1
        assert len(at.broker.asked) == 5


async def test_answers_get_the_configured_headers() -> None:
    async with web_staged(proxyHttpResponseHeadersJson='{"X-Frame-Options": "DENY"}') as at:
        for path in (ADMIN, "/healthz", "/nowhere"):
            assert (await at.ask(path)).headers["X-Frame-Options"] == "DENY"


# --- streaming ------------------------------------------------------------------------------------


async def test_a_chunked_answer_and_a_chunked_body_stream_through() -> None:
    pieces = [b"a" * 10_000, b"b" * 200_000, b"c"]
    got = asyncio.Queue[bytes]()

    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        async for piece in request.content.iter_any():
            got.put_nowait(piece)
            await response.write(piece)
        await response.write_eof()
        return response

    async with web_staged() as at:
        at.broker.answer = stream
        begun = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield pieces[0]
            # The first piece is at the broker before the second one is sent: nothing waits for the whole.
            await begun.wait()
            for piece in pieces[1:]:
                yield piece

        async with asyncio.TaskGroup() as group:
            asking = group.create_task(_read(at, body()))
            assert (await got.get()).startswith(b"a")
            begun.set()
        assert asking.result() == b"".join(pieces)


async def _read(at: WebStage, body: AsyncIterator[bytes]) -> bytes:
    answer = await at.ask(method="PUT", data=body)
    assert answer.headers["Transfer-Encoding"] == "chunked"
    return answer.body


async def test_an_answer_that_breaks_off_is_no_whole_answer_for_the_client() -> None:
    for chunked in (True, False):

        async def half(request: web.BaseRequest, chunked: bool = chunked) -> web.StreamResponse:
            response = web.StreamResponse(headers={} if chunked else {"Content-Length": "100000"})
            if chunked:
                response.enable_chunked_encoding()
            await response.prepare(request)
            await response.write(b"x" * 50_000)
            assert request.transport is not None
            request.transport.close()
            return response

        async with web_staged() as at:
            at.broker.answer = half
            async with at.client.get(at.url + ADMIN) as answer:
                assert answer.status == 200
                with pytest.raises(aiohttp.ClientError):
                    await answer.read()
            assert counted(at.stage.proxy.counters, "http_cut_answers") == 1


# --- redirects ------------------------------------------------------------------------------------


async def test_a_redirect_is_followed_with_body_and_authorization() -> None:
    bodies = []

    async def owner(request: web.BaseRequest) -> web.StreamResponse:
        bodies.append((request.method, await request.read(), request.headers["Authorization"]))
        return web.Response(status=204)

    async with fake_web_broker(owner) as other, web_staged(brokerWebServiceAllowedTargetPorts=other.port) as at:
        at.broker.answer = redirect_to(other.url + ADMIN)
        headers = {"Authorization": "Bearer t"}
        for data in (b"", b"x" * 300_000):
            assert (await at.ask(method="PUT", data=data, headers=headers)).status == 204
        assert bodies == [("PUT", b"", "Bearer t"), ("PUT", b"x" * 300_000, "Bearer t")]
        assert at.stage.direct.held == 0


async def test_a_redirect_before_the_body_was_sent_takes_the_rest_along() -> None:
    async def owner(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response(len(await request.read()))

    async with fake_web_broker(owner) as other, web_staged(brokerWebServiceAllowedTargetPorts=other.port) as at:
        redirected = asyncio.Event()

        async def redirect(request: web.BaseRequest) -> web.StreamResponse:
            redirected.set()
            return web.Response(status=307, headers={"Location": f"{other.url}{request.raw_path}"})

        async def body() -> AsyncIterator[bytes]:
            yield b"x" * 1000
            await redirected.wait()
            yield b"y" * 1000

        at.broker.answer = redirect
        assert (await at.ask(method="POST", data=body())).json == 2000


@pytest.mark.threat("redirect-to-inner-host")
@pytest.mark.parametrize(
    "location",
    ["http://127.0.0.1:1/", "file:///etc/passwd", "http://a:b@127.0.0.1:{port}/", "", "http://169.254.169.254:8080/"],
)
async def test_redirects_lead_only_where_this_proxy_may_go(location: str) -> None:
    async with web_staged(brokerProxyAllowedIPAddresses="127.0.0.0/8") as at:
        at.broker.answer = redirect_to(location.format(port=at.broker.port))
        answer = await at.ask()
        assert answer.status == 502
        assert "redirected" in answer.json["reason"]
        assert len(at.broker.asked) == 1


# --- failures -------------------------------------------------------------------------------------


async def test_a_broker_that_is_down_is_a_clear_error_and_its_return_is_noticed() -> None:
    port = free_port()
    async with staged(brokerWebServiceURL=f"http://127.0.0.1:{port}") as stage, aiohttp.ClientSession() as client:
        url = f"http://127.0.0.1:{stage.proxy.web_port}{ADMIN}"
        async with client.get(url) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            assert (await answer.json())["reason"] == "no server of brokerWebServiceURL can be reached"
        async with fake_web_broker(fine, port), in_time():
            while True:
                async with client.get(url) as answer:
                    if answer.status == 200:
                        break
                await asyncio.sleep(0.01)


async def test_several_brokers_take_turns_and_one_that_is_down_is_passed_over() -> None:
    down = f"http://127.0.0.1:{free_port()}"
    async with fake_web_broker() as other, fake_web_broker() as broker:
        urls = f"{broker.url},{down},{other.url}"
        async with staged(brokerWebServiceURL=urls) as stage, aiohttp.ClientSession() as client:
            for _ in range(12):
                async with client.get(f"http://127.0.0.1:{stage.proxy.web_port}{ADMIN}") as answer:
                    assert answer.status == 200
            assert len(broker.asked) >= 4
            assert len(other.asked) >= 4
            assert 1 <= counted(stage.proxy.counters, "http_server_failures") <= 4


async def test_a_broker_that_does_not_answer_is_a_504_and_frees_the_place() -> None:
    async with web_staged(httpProxyTimeout=50) as at:
        at.broker.answer = silent
        answer = await at.ask()
        assert answer.status == 504
        assert "httpProxyTimeout" in answer.json["reason"]


async def test_a_client_that_leaves_ends_what_the_broker_does_for_it() -> None:
    cancelled = asyncio.Event()
    asked = asyncio.Event()

    async def slow(_: web.BaseRequest) -> web.StreamResponse:
        asked.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    async with web_staged() as at:
        at.broker.answer = slow
        for request in ("GET", "PUT"):
            asked.clear()
            cancelled.clear()
            _, writer = await asyncio.open_connection("127.0.0.1", at.stage.proxy.web_port)
            body = "Content-Length: 10\r\n" if request == "PUT" else ""
            writer.write(f"{request} {ADMIN} HTTP/1.1\r\nHost: p\r\n{body}\r\n".encode())
            async with in_time():
                await asked.wait()
                writer.close()
                await writer.wait_closed()
                await cancelled.wait()


# --- limits ---------------------------------------------------------------------------------------


async def test_requests_beyond_the_limit_wait_for_their_turn_or_leave_and_pages_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.web.forward.settings.GATE_SECONDS", patient(5.0))
    gate = asyncio.Event()

    async def held(_: web.BaseRequest) -> web.StreamResponse:
        await gate.wait()
        return web.Response()

    async with web_staged(maxConcurrentHttpRequests=1) as at:
        at.broker.answer = held
        async with in_time(), asyncio.TaskGroup() as group:
            all_of_them = [group.create_task(at.ask())]
            await at.stage.until(lambda: at.broker.asked, "a request at the broker")
            all_of_them += [group.create_task(at.ask(path)) for path in (ADMIN, LIST)]
            await at.stage.until(lambda: at.waiting == 2, "two requests that wait")
            for body in ("", "Content-Length: 300000\r\n"):
                leaver = await at.stage.client(port=at.stage.proxy.web_port)
                await leaver.send(
                    f"PUT {ADMIN} HTTP/1.1\r\nHost: p\r\n{body}\r\n".encode() + b"x" * 40_000 * bool(body)
                )
                await at.stage.until(lambda: at.waiting == 3, "a third")
                leaver.reset()
                await at.stage.until(lambda: at.waiting == 2, "the place of who has left")
            for page in ("/metrics", "/healthz"):
                assert (await at.ask(page)).status == 200
            assert len(at.broker.asked) == 1
            gate.set()
        assert [one.result().status for one in all_of_them] == [200, 200, 200]
        assert len(at.broker.asked) == 3


# --- what is no request to a server ---------------------------------------------------------------


@pytest.mark.threat("request-smuggling", "header-injection")
@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET http://evil.example/admin/v2/clusters HTTP/1.1\r\nHost: p\r\n\r\n", 400),
        ("CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", 405),
        ("TRACE /admin HTTP/1.1\r\nHost: p\r\n\r\n", 405),
        ("GET /admin/../metrics HTTP/1.1\r\nHost: p\r\n\r\n", 400),
        ("GET /admin/%2e%2e/x HTTP/1.1\r\nHost: p\r\n\r\n", 400),
        ("GET /admin/%252e%252e/x HTTP/1.1\r\nHost: p\r\n\r\n", 400),
        ("GET /admin/..;a=b/x HTTP/1.1\r\nHost: p\r\n\r\n", 400),
        ("GET /admin/a%0d%0ab HTTP/1.1\r\nHost: p\r\n\r\n", 400),
        ("GET /admin/v2/clusters HTTP/1.1\r\n\r\n", 400),
        ("GET /admin/v2/clusters HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("POST /admin HTTP/1.1\r\nHost: p\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("POST /admin HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 400),
        ("POST /admin HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        ("POST /admin HTTP/1.1\r\nHost: p\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
        ("POST /admin HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n1\nX\n0\n\n", 400),
        ("GET /admin HTTP/1.1\r\nHost: p\r\nX: a\x00b\r\n\r\n", 400),
        ("GET /admin HTTP/1.1\r\nHost: p\r\n X: folded\r\n\r\n", 400),
    ],
)
async def test_what_two_servers_could_understand_differently_is_refused(request_text: str, status: int) -> None:
    async with web_staged() as at:
        answer = await at.raw(request_text.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1).encode())
        assert int(answer.split()[1]) == status
        assert at.broker.asked == []


@pytest.mark.threat("redirect-loop")
async def test_a_redirect_back_to_this_proxy_is_an_error_and_not_a_storm_of_requests() -> None:
    async with web_staged(brokerWebServiceAllowedTargetPorts="*") as at:
        at.broker.answer = redirect_to(at.url + ADMIN)
        answer = await at.ask()
        assert answer.status == 508
        assert "comes back to this proxy" in answer.text
        assert len(at.broker.asked) == 1
        # Another proxy in front is no loop.
        at.broker.answer = fine
        assert (await at.ask(headers={"Via": "1.1 pulsar-proxy (0123456789abcdef)"})).status == 200


@pytest.mark.threat("redirect-in-disguise")
@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "0x7f.1",
        "127.1",
        "0177.0.0.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "localhost",
        "10.0.0.1@127.1",
    ],
)
@pytest.mark.parametrize("form", ["http://{}:{}/", "//{}:{}/", "http:\\\\{}:{}/"])
async def test_no_form_of_an_inner_address_gets_a_redirect_there(host: str, form: str) -> None:
    keys = {"brokerWebServiceAllowedTargetPorts": "*", "brokerProxyAllowedIPAddresses": "10.0.0.0/8"}
    async with fake_web_broker() as inner, web_staged(**keys) as at:
        at.broker.answer = redirect_to(form.format(host, inner.port))
        assert (await at.ask()).status == 502
        assert inner.connections == 0
