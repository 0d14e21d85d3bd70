"""Web pages of strangers, with the browser of somebody inside as their hands."""

import pytest

from tests.support.web.web_stage import ADMIN, web_staged
from tests.unit.proxy.web.test_origins import CROSS_SITE

EVIL = {"Origin": CROSS_SITE["Origin"], "Sec-Fetch-Site": CROSS_SITE["Sec-Fetch-Site"]}
SOCKET = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "eA=="}


@pytest.mark.threat("web-page-csrf")
@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("POST", "/proxy-stats/logging/2", EVIL),
        ("POST", "/proxy-stats/logging/2", {"Origin": "http://evil.example"}),
        ("POST", "/proxy-stats/logging/2", {"Sec-Fetch-Site": "same-site"}),
        ("DELETE", ADMIN, EVIL),
        ("PUT", ADMIN, {"Origin": "null"}),
        ("POST", ADMIN, {"Sec-Fetch-Site": "cross-site"}),
        ("GET", "/ws/v2/producer/persistent/t/n/x", EVIL | SOCKET),
    ],
)
async def test_a_page_of_another_origin_changes_nothing(method: str, path: str, headers: dict[str, str]) -> None:
    async with web_staged() as at:
        answer = await at.ask(path, method=method, headers=headers)
        assert answer.status == 403
        assert "webServiceAllowedOrigins" in answer.text
        assert (at.broker.asked, at.stage.proxy.relay_log.level) == ([], 0)
        assert at.stage.proxy.counters.web.refused == {"cross_origin": 1}
        at.stage.change(webServiceAllowedOrigins="*")
        if "Upgrade" not in headers:
            assert (await at.ask(path, method=method, headers=headers)).status in (200, 204)


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
