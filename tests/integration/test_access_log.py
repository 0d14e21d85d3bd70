"""The log line of each request of the web ports: what it says, and what it must not."""

from time import monotonic
from typing import Any

import pytest

from tests.integration.test_http_authentication import STRICT, TOKEN, guarded
from tests.support.proxies.proxy_under_test import kept_log
from tests.support.web.web_stage import ADMIN


async def logged(
    monkeypatch: pytest.MonkeyPatch, *paths: str, level: str = "info", headers: dict[str, str] = TOKEN, **keys: str
) -> list[dict[str, Any]]:
    """Make requests one after the other, and give the lines about them."""
    log = kept_log(monkeypatch, level)
    async with guarded(STRICT, authenticationRoleLoggingAnonymizer="redacted", **keys) as at:
        for path in paths:
            await at.ask(path, headers=headers)
    return log.of("http request")


async def test_a_line_says_who_asked_what_and_what_came_of_it_but_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    (fine,) = await logged(monkeypatch, f"{ADMIN}?token=secret")
    assert (fine["method"], fine["path"], fine["status"], fine["level"]) == ("GET", ADMIN, 200, "info")
    assert fine["client"].startswith("127.0.0.1:")
    assert fine["principal"] == "[REDACTED]"
    assert fine["bytes"] >= len(b'["ok"]')
    assert "secret" not in str(fine)
    (refused,) = await logged(monkeypatch, ADMIN, headers={"Authorization": "Bearer wrong"})
    assert (refused["status"], refused["reason"]) == (401, "failed to authenticate: unknown")
    assert "principal" not in refused


async def test_probes_and_scrapes_get_a_line_at_debug_only(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = ("/healthz", "/metrics", "/nowhere")
    assert [line["path"] for line in await logged(monkeypatch, *paths)] == ["/nowhere"]
    found = [(line["path"], line["level"]) for line in await logged(monkeypatch, *paths, level="debug")]
    assert found == [("/healthz", "debug"), ("/metrics", "debug"), ("/nowhere", "info")]


@pytest.mark.threat("unserved-path-log")
async def test_requests_that_nobody_served_get_few_short_lines_and_take_none_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = "/" + "a" * 7900
    began = monotonic()
    first, *lines, last = await logged(monkeypatch, *[f"{long}?token=secret"] * 60, ADMIN)
    seconds = monotonic() - began
    assert (first["path"], first["status"]) == (long[:256] + "... (7901 in all)", 404)
    assert last["status"] == 200
    # Ten for each second that has begun.
    assert len(lines) < 10 * (int(seconds) + 2)


BALANCERS, TRUSTED = "trustedLoadBalancerIPAddresses", {"webServiceTrustXForwardedFor": "true"}


@pytest.mark.threat("claimed-forwarded-for")
@pytest.mark.parametrize(
    ("keys", "address"),
    [
        ({}, "127.0.0.1"),
        (TRUSTED, "198.51.100.66"),
        ({**TRUSTED, BALANCERS: "192.0.2.1"}, "127.0.0.1"),
        ({**TRUSTED, BALANCERS: "127.0.0.1,10.0.0.0/8"}, "203.0.113.7"),
    ],
)
async def test_an_address_is_a_balancers_word_where_that_is_trusted_and_nobody_elses(
    keys: dict[str, str], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = TOKEN | {"X-Forwarded-For": "198.51.100.66, 203.0.113.7, 10.0.0.2"}
    (line,) = await logged(monkeypatch, ADMIN, headers=headers, **keys)
    assert line["client"].rpartition(":")[0] == address
