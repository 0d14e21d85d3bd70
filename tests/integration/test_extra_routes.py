"""Routes of an operator's own (`httpReverseProxy.<name>`): what their servers are asked, and what comes back."""

import pytest
from aiohttp import web
from yarl import URL

from tests.support.web.fake_web_broker import echoed, fake_web_broker, redirect_to
from tests.support.web.web_stage import ADMIN, web_staged

# The route's path, what stands behind the host in `proxyTo`, and for each request what its server is asked. The Java
# proxy 4.0.8 (Jetty's ProxyServlet.Transparent, with the route as context) asks the same, but where a line says so.
FORMS = [
    ("/app", "/base", "/app/x", "/base/x"),
    ("/app", "/base", "/app/", "/base"),
    ("/app", "/base", "/app/?a=/b//c&d=..", "/base?a=/b//c&d=.."),
    ("/app", "/base", "/app//x//y", "/base/x/y"),
    ("/app", "/base", "//app/x", "/base/x"),  # Jetty: 403, or /base/x with a context that takes it
    ("/app", "/base", "/app/%2F%2Fhost/x", "/base/%2F%2Fhost/x"),
    ("/app", "/base", "/%61pp/x", "/base/x"),  # Jetty: 403
    ("/app", "/base", "/app;v=1/x;v=2", "/base/x;v=2"),  # Jetty: 403
    ("/app", "/base", "/application", None),
    ("/app", "/base", "/app%2Fx", None),
    ("/app/", "/base/", "/app/x", "/base/x"),
    ("/app/", "", "/app/x", "/x"),
    ("/app", "", "/app/", "/"),
    ("/app", "/", "/app//host/x", "/host/x"),
    ("/a/b", "/c/d", "/a/b/x", "/c/d/x"),
    ("/", "/base", "/x/y", "/base/x/y"),  # Java does not start with a route at /
    ("/", "/base", "/", "/base"),
]
# Each of these would lead out of /base for some server: 400, and nobody is asked. Jetty resolves or refuses them, too.
ESCAPES = [
    "/app/../x", "/app/%2e%2e/x", "/app/%2E./x", "/app/..%2Fx", "/app%2F..%2Fx", "/app/..;/x", "/app/%252e%252e/x",
    "/app/x/..", "/app/.", "/app/..%5Cx", "/app/%2F..%2Fx",
]  # fmt: skip


def route(path: str, to: str) -> dict[str, str]:
    return {"httpReverseProxy.app.path": path, "httpReverseProxy.app.proxyTo": to}


@pytest.mark.threat("path-leaves-route")
@pytest.mark.parametrize(("path", "base"), dict.fromkeys((form[0], form[1]) for form in FORMS))
async def test_a_route_gives_way_to_the_path_of_its_server(path: str, base: str) -> None:
    async with fake_web_broker() as server, web_staged(**route(path, server.url + base)) as at:
        for _, _, given, expected in [form for form in FORMS if form[:2] == (path, base)]:
            server.asked.clear()
            assert (await at.ask(given)).status == (404 if expected is None else 200), given
            assert [asked.path for asked in server.asked] == ([] if expected is None else [expected]), given
        assert at.broker.asked == []


@pytest.mark.threat("path-leaves-route")
async def test_nothing_leads_out_of_the_path_of_a_route_s_server() -> None:
    async with fake_web_broker() as server, web_staged(**route("/app", server.url + "/base")) as at:
        for given in ESCAPES:
            assert (await at.ask(given)).status == 400, given
        assert server.asked == []


async def test_the_route_s_own_path_is_told_with_its_slash() -> None:
    # As Jetty does for a context, where relative links of the page are below the route; other methods would lose their
    # body on the way, and Jetty redirects them as well.
    async with fake_web_broker() as server, web_staged(**route("/app", server.url + "/base")) as at:
        for given, told in (("/app", "/app/"), ("/app?a=1", "/app/?a=1"), ("//app", "/app/"), ("/%61pp", "/%61pp/")):
            for method in ("GET", "HEAD"):
                answer = await at.ask(given, method)
                assert (answer.status, answer.headers["Location"]) == (302, told)
        assert server.asked == []
        assert (await at.ask("/app?a=1", "POST")).status == 200
        assert [(asked.method, asked.path) for asked in server.asked] == [("POST", "/base?a=1")]


@pytest.mark.threat("client-credentials-redirected")
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_redirect_of_a_route_s_server_is_the_client_s(code: int, method: str) -> None:
    async with fake_web_broker() as server, fake_web_broker() as other:
        server.answer = redirect_to(other.url + "/elsewhere", code)
        keys = {**route("/app", server.url), "brokerWebServiceAllowedTargetPorts": other.port}
        async with web_staged(**keys) as at:
            answer = await at.ask("/app/x", method=method, data=b"body")
            found = (answer.status, answer.headers["Location"], answer.body)
            assert found == (code, other.url + "/elsewhere", b"moved")
        assert len(server.asked) == 1
        assert other.asked == []


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/metrics", "/metrics"), ("/status.html", "/status.html"), ("/healthz", "/healthz"), ("/readyz", "/readyz"),
        ("/config", "/config"), ("/proxy-stats", "/proxy-stats/connections"), ("/proxy-stats/connections", None),
        ("/ui", "/ui/state"), ("/", None), ("/admin", ADMIN), ("/lookup", "/lookup/v2/topic/persistent/a/b/c"),
    ],
)  # fmt: skip
async def test_a_route_named_like_a_page_is_served_and_the_others_stay(path: str, asked: str | None) -> None:
    # The Java proxy serves such a route at /status.html, and does not start with the others.
    async with fake_web_broker() as server, web_staged(**route(path, server.url + "/base")) as at:
        given = (asked or path) + ("/" if (asked or path) == path != "/" else "")
        assert (await at.ask(given, "PUT")).status == 200
        assert (await at.ask(given)).status == 200
        below = given.removeprefix(path).rstrip("/")
        assert [each.path for each in server.asked] == [f"/base{below}"] * 2
        for page in {"/metrics", "/healthz", "/status.html", "/ui"} - {path}:
            assert (await at.ask(page)).status == 200
        assert len(server.asked) == 2
        assert at.broker.asked == []


@pytest.mark.parametrize(
    ("path", "base", "given", "expected"),
    [
        ("/app", "/base", "/app/ws?token=t", "/base/ws?token=t"),
        ("/app", "/base", "/app", "/base"),
        ("/app", "", "/app/", "/"),
        ("/ws", "/base/ws/", "/ws/v2/x", "/base/ws/v2/x"),
    ],
)
async def test_a_websocket_over_a_route_asks_the_same_path(path: str, base: str, given: str, expected: str) -> None:
    # The Java proxy opens no WebSocket over such a route.
    async with fake_web_broker(echoed) as server, web_staged(**route(path, server.url + base)) as at:
        async with at.client.ws_connect(URL(at.url + given, encoded=True)) as socket:
            await socket.send_bytes(b"x")
            assert await socket.receive_bytes() == b"x"
        assert [asked.path for asked in server.asked] == [expected]
        assert server.asked[0].header("Host") == server.url.removeprefix("http://")


async def test_cookies_pass_between_a_client_and_a_route_s_server() -> None:
    # The server may be a console with a login; brokers set no cookies, and get none.
    async def remembering(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(headers=[("Set-Cookie", "a=b"), ("Set-Cookie", "c=d; Path=/app")])

    async with fake_web_broker(remembering) as server, web_staged(**route("/app", server.url)) as at:
        at.broker.answer = remembering
        for path, asked, cookies in (("/app/x", server.asked, ["a=b", "c=d; Path=/app"]), (ADMIN, at.broker.asked, [])):
            assert (await at.ask(path, headers={"Cookie": "e=f; g=h"})).headers.getall("Set-Cookie", []) == cookies
            assert asked[-1].header("Cookie") == ("e=f; g=h" if cookies else None)
        await at.ask("/app/x")
        # Nobody else's, and none that were kept.
        assert server.asked[-1].header("Cookie") is None
