"""Web pages of strangers, with the browser of somebody inside as their hands."""

import pytest

from tests.support.proxies.counted import counted_by
from tests.support.web.web_stage import ADMIN, web_staged

EVIL = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
SOCKET = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "eA=="}
# What a browser says of the page that asks, and whether that page may.
PAGES: list[tuple[dict[str, str], bool]] = [
    ({}, True),
    ({"Host": "P:8080", "Origin": "https://p:8080"}, True),
    ({"Host": "p:8080", "Origin": "http://p"}, False),
    ({"Origin": EVIL["Origin"]}, False),
    ({"Origin": "null"}, False),
    # A balancer may have changed the name: the browser knows better.
    ({"Host": "inner", "Sec-Fetch-Site": "same-origin", "Origin": "https://p"}, True),
    ({"Sec-Fetch-Site": "none"}, True),
    ({"Sec-Fetch-Site": "same-site"}, False),
    ({"Sec-Fetch-Site": "of-tomorrow"}, False),
    (EVIL, False),
]


@pytest.mark.threat("web-page-csrf")
async def test_only_pages_of_the_own_origin_and_programs_change_anything() -> None:
    async with web_staged() as at:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            for headers, may in PAGES:
                answer = await at.ask(method=method, headers=headers)
                assert (answer.status, "webServiceAllowedOrigins" in answer.text) == (
                    (200, False) if may else (403, True)
                ), headers
        assert len(at.broker.asked) == 4 * 4


@pytest.mark.threat("web-page-csrf")
async def test_a_page_of_a_foreign_origin_may_read_and_no_more_unless_the_origin_is_listed() -> None:
    async with web_staged() as at:

        async def status(method: str, path: str = ADMIN, **headers: str) -> int:
            return (await at.ask(path, method=method, headers=EVIL | headers)).status

        for method in ("GET", "HEAD", "OPTIONS"):
            assert await status(method) == 200
        assert await status("GET", "/ws/v2/producer/persistent/t/n/x", **SOCKET) == 403
        level = "/proxy-stats/logging/2"
        assert await status("POST", level) == 403
        assert (len(at.broker.asked), at.stage.proxy.relay_log.level) == (3, 0)
        assert counted_by(at.stage.proxy.counters, "http_refused_requests") == {"cross_origin": 2}
        at.stage.change(webServiceAllowedOrigins="https://Console.example")
        assert await status("POST", level, Origin="http://console.example") == 403
        assert await status("POST", level, Origin="https://console.example") == 204
        at.stage.change(webServiceAllowedOrigins="*")
        assert await status("POST", level) == 204


@pytest.mark.threat("web-page-dns-rebinding")
async def test_a_name_that_was_rebound_to_this_proxy_is_not_served() -> None:
    async with web_staged(webServiceAllowedHosts="proxy.example") as at:
        for path in ("/config", "/metrics", "/proxy-stats/connections", ADMIN):
            for host, status in (("evil.example", 421), ("evil.example:80", 421), ("proxy.example:1", 200)):
                answer = await at.ask(path, headers={"Host": host})
                assert answer.status == status
                assert status == 200 or "webServiceAllowedHosts" in answer.text
            # By its address: the tests' own way, and that of scrapers.
            assert (await at.ask(path)).status == 200
        for path in ("/healthz", "/readyz", "/status.html"):
            assert (await at.ask(path, headers={"Host": "evil.example"})).status == 200
        assert len(at.broker.asked) == 2
