"""The page for people on the web port: who sees its numbers, that it loads nothing from elsewhere, and a browser."""

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ServerError
from proxy.core.errors import OverLimit
from tests.support.clients.async_client import LOOPBACK
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.sockets.ports import free_port
from tests.support.web.browser import Tab, browsing
from tests.support.web.html_pages import Page
from tests.support.web.web_pages import get

NO_DETAILS = "these numbers are shown on loopback"
# Widths and heights of a phone, a tablet and a desktop.
SCREENS = ((375, 800), (820, 1180), (1280, 900))
# Texts of the page of which a part is beyond the right edge of the screen, or of the part of the page that holds them.
OUT_OF_SIGHT = """
[...document.querySelectorAll("header *, main *, footer *")].filter((node) => {
  const box = node.getBoundingClientRect(), holder = node.closest("section");
  const edge = holder ? holder.getBoundingClientRect().right : innerWidth;
  return box.width && box.right > Math.min(edge, innerWidth) + 1;
}).map((node) => `${node.tagName} ${node.className} ${node.textContent}`.slice(0, 80))
"""
WHOLE = "document.documentElement.outerHTML"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


async def asked(stage: Stage, path: str, *headers: str, **where: str) -> tuple[int, dict[str, Any]]:
    page = await get(stage.proxy.web_port, path, "GET", *headers, **where)
    return page.status, json.loads(page.text)


async def test_the_page_is_one_file_that_loads_nothing_and_runs_its_own_script_only() -> None:
    async with staged() as stage:
        pages = [await get(stage.proxy.web_port, path) for path in ("/", "/ui")]
        assert pages[0].text == pages[1].text
        page, policy = pages[0], pages[0].headers["content-security-policy"]
        parsed = Page(page.text)
        assert [link for link in parsed.references if ":" in link or link.startswith("//")] == ["data:,"]
        assert parsed.handlers == []
        assert (len(parsed.scripts), len(parsed.styles)) == (1, 1)
        for kind in ("script", "style"):
            (text,) = re.findall(f"<{kind}>(.*?)</{kind}>", page.text, re.DOTALL)
            assert f"{kind}-src 'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in policy
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["cache-control"] == "no-store"


async def test_the_numbers_are_for_this_machine_only() -> None:
    async with staged() as stage:
        for host in (LOOPBACK, f"{LOOPBACK}:{stage.proxy.web_port}", "localhost", "[::1]:80"):
            assert (await asked(stage, "/ui/state", host=host))[0] == 200
        # A name that a web page elsewhere has chosen, and a proxy on this machine that asks for somebody.
        assert (await asked(stage, "/ui/state", host="rebound.example"))[0] == 403
        for header in ("X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1", "Via: 1.1 front"):
            status, body = await asked(stage, "/ui/state", header)
            assert (status, NO_DETAILS in body["reason"]) == (403, True)
        assert (await asked(stage, "/ui/config", host="rebound.example"))[0] == 403


async def test_a_listener_of_its_own_shows_the_numbers_to_whoever_reaches_it() -> None:
    # The kernel gives each address ports of its own: a port 0 here might be another test's at the other address.
    async with staged(webBindAddress="127.0.0.2", bindAddress="127.0.0.1", webServicePort=free_port()) as stage:
        assert (await asked(stage, "/ui/state", host="metrics.example", at="127.0.0.2"))[0] == 200
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(LOOPBACK, stage.proxy.web_port)
        client = await stage.connected()
        await client.topics("demo/ns-00")


# --- in a browser ---------------------------------------------------------------------------------


@asynccontextmanager
async def looked_at(stage: Stage, tmp_path: Path) -> AsyncIterator[Tab]:
    async with browsing(f"http://{LOOPBACK}:{stage.proxy.web_port}/", tmp_path / "profile") as tab:
        await tab.until('document.documentElement.dataset.ready === "yes"')
        yield tab


@pytest.mark.timeout(300)
async def test_a_browser_shows_all_with_nothing_out_of_sight_on_any_screen_in_either_scheme(tmp_path: Path) -> None:
    key = "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis"
    error = OverLimit(ServerError.TooManyRequests, "too many", stage="list", asked=2, limit=1, key=key)
    async with staged() as stage:
        client = await stage.connected()
        await client.topics("demo/ns-00")
        stage.proxy.reports.refusals.note_over_limit(error, '<b onclick="x">client', "<img src=x onerror=alert(1)>")
        stage.proxy.reports.refusals.note_over_limit(
            error, "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535", 60 * "long"
        )
        assert stage.proxy.minutes is not None
        for second in range(30):
            stage.proxy.minutes.tick(stage.proxy.loop.time() + second)
        backgrounds = dict[str, set[str]]()
        async with looked_at(stage, tmp_path) as tab:
            await tab.until("document.querySelector('#config td')")
            became = await tab.value(WHOLE)
            for scheme in ("dark", "light"):
                for width, height in SCREENS:
                    await tab.screen(width, height, scheme)
                    assert await tab.value("innerWidth") == width
                    assert await tab.value(OUT_OF_SIGHT) == [], (scheme, width)
                    backgrounds.setdefault(scheme, set()).add(await tab.value(BACKGROUND))
        for shown in (
            r'<main id="details">',
            r'role="meter" aria-label="Lists being decoded \(heap\)"',
            r'<td class="up"[^>]*>up</td>',
            "&lt;img src=x",
            r'<td class="key"[^>]*>clusterName</td><td[^>]*>test</td><td[^>]*>command line</td>',
        ):
            assert re.search(shown, became), shown
        assert "<img" not in became
        assert (became.count("<svg"), became.count('class="area"')) == (8, 8)
        light, dark = backgrounds["light"], backgrounds["dark"]
        assert len(light) == len(dark) == len(light ^ dark) - 1 == 1


@pytest.mark.timeout(300)
async def test_a_browser_elsewhere_is_told_why_it_sees_no_numbers(tmp_path: Path) -> None:
    async with staged(enableProxyStatsEndpoints="false") as stage, looked_at(stage, tmp_path) as tab:
        became = await tab.value(WHOLE)
        assert re.search(r'<main id="details" hidden="">', became)
        assert "switched off (enableProxyStatsEndpoints)" in became
        assert "/metrics" in became
