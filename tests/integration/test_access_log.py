"""The log line of each request of the web ports: what it says, and what it must not."""

import asyncio
import io
import json
from time import monotonic
from typing import Any

import pytest

from proxy.auth.fairness_key import DisplayNames
from proxy.auth.roles import ANONYMIZERS
from proxy.core.log import open_log
from proxy.net.hangup import HangupWatcher
from proxy.web.http.clients import Guard
from proxy.web.port import start_web
from proxy.web.readiness import Readiness
from tests.integration.test_http_authentication import Roles
from tests.support.web.fake_web_broker import fake_web_broker
from tests.support.web.web_parts import Running, config, web_parts
from tests.support.web.web_stage import ADMIN


class Verifier(Roles):
    async def verify(self, presented: Any, certificate: bytes | None, client: str) -> Any:
        return await self.authenticate(presented.method, presented.data, certificate, client)

    def refused(self, client: str, failure: Exception) -> None: ...


async def logged(*requests: tuple[str, ...], level: str = "info", **keys: str) -> list[dict[str, Any]]:
    """Make requests (path, headers) one after the other, and give the lines about them."""
    file = io.BytesIO()
    hangup = HangupWatcher(asyncio.get_running_loop())
    async with fake_web_broker() as broker:
        parts = web_parts(config(brokerWebServiceURL=broker.url, **keys), Readiness(), hangup)
        parts.log, parts.guard = open_log(level, file=file), Guard(Verifier())
        parts.names = DisplayNames(ANONYMIZERS["redacted"])
        port = await start_web(parts)
        for path, *headers in requests:
            await Running(port, parts, Readiness()).get(path, "GET", *headers)
        await port.close()
    hangup.close()
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    return [line for line in lines if line["event"] == "http request"]


async def test_a_line_says_who_asked_what_and_what_came_of_it_but_no_query() -> None:
    token = "Authorization: Bearer alice-token"
    fine, refused = await logged((f"{ADMIN}?token=secret", token), (ADMIN, "Authorization: Bearer wrong"))
    assert (fine["method"], fine["path"], fine["status"], fine["level"]) == ("GET", ADMIN, 200, "info")
    assert fine["client"].startswith("127.0.0.1:")
    assert fine["principal"] == "[REDACTED]"
    assert fine["bytes"] >= len(b'["ok"]')
    assert "secret" not in str(fine)
    assert (refused["status"], refused["reason"]) == (401, "failed to authenticate: unknown")
    assert "principal" not in refused


async def test_probes_and_scrapes_get_a_line_at_debug_only() -> None:
    requests = [(path,) for path in ("/healthz", "/metrics", "/nowhere")]
    assert [line["path"] for line in await logged(*requests)] == ["/nowhere"]
    found = [(line["path"], line["level"]) for line in await logged(*requests, level="debug")]
    assert found == [("/healthz", "debug"), ("/metrics", "debug"), ("/nowhere", "info")]


@pytest.mark.threat("unserved-path-log")
async def test_of_a_long_path_only_the_beginning_is_logged() -> None:
    (line,) = await logged(("/" + "a" * 7900 + "?token=secret",))
    assert line["path"] == "/" + "a" * 255 + "... (7901 in all)"
    assert line["status"] == 404


@pytest.mark.threat("unserved-path-log")
async def test_requests_that_nobody_served_get_few_lines_and_take_none_from_others() -> None:
    vain = [("/nowhere" + str(number),) for number in range(60)]
    began = monotonic()
    lines = await logged(*vain, (ADMIN,))
    seconds = monotonic() - began
    assert lines[-1]["status"] == 200
    # Ten for each second that has begun.
    assert sum(line["status"] == 404 for line in lines) <= 10 * (int(seconds) + 2)


async def test_the_address_is_a_balancer_s_word_where_that_is_trusted() -> None:
    request = (ADMIN, "X-Forwarded-For: 198.51.100.9, 10.0.0.1")
    for trusted, address in (("true", "198.51.100.9"), ("false", "127.0.0.1")):
        (line,) = await logged(request, webServiceTrustXForwardedFor=trusted)
        assert line["client"].rpartition(":")[0] == address
