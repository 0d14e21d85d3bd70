"""The page for people on the web port: who sees its numbers, that it loads nothing from elsewhere, and a browser."""

import asyncio
import json
import re
import subprocess
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ServerError
from proxy.core.errors import OverLimit
from tests.support.clients.async_client import LOOPBACK
from tests.support.patience import patient
from tests.support.proxies.proxy_under_test import SLOW_READER_RCVBUF, TIGHT, Stage, jammed, namespace, staged
from tests.support.tools import tool
from tests.support.web.browser import browsing
from tests.support.web.html_pages import Page
from tests.support.web.web_pages import get

# The browser's own time: it ends as soon as nothing is left to do.
VIRTUAL_MILLIS = 3000
SCHEMES = {"dark": "0", "light": "1"}
SECRET = "token:this-is-a-secret-of-the-proxy"
NO_DETAILS = "these numbers are shown on loopback"
# Widths and heights of a phone, a tablet and a desktop.
SCREENS = ((375, 800), (820, 1180), (1280, 900))
SHOWN = """document.documentElement.dataset.ready === "yes" && document.querySelector("#config td")"""
# Texts of the page of which a part is beyond the right edge of the screen, or of the part of the page that holds them.
OUT_OF_SIGHT = """
[...document.querySelectorAll("header *, main *, footer *")].filter((node) => {
  const box = node.getBoundingClientRect(), holder = node.closest("section");
  const edge = holder ? holder.getBoundingClientRect().right : innerWidth;
  return box.width && box.right > Math.min(edge, innerWidth) + 1;
}).map((node) => `${node.tagName} ${node.className} ${node.textContent}`.slice(0, 80))
"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


async def asked(stage: Stage, path: str, host: str = LOOPBACK, *headers: str) -> tuple[int, dict[str, Any]]:
    reader, writer = await asyncio.open_connection(LOOPBACK, stage.proxy.web_port)
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers, "", ""]
    writer.write("\r\n".join(lines).encode())
    answer = await asyncio.wait_for(reader.read(), patient(20))
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def test_the_page_is_one_file_that_loads_nothing_and_runs_its_own_script_only() -> None:
    async with staged(webServicePageReuseMillis=1000) as stage:
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
            assert (await asked(stage, "/ui/state", host))[0] == 200
        # A name that a web page elsewhere has chosen, and a proxy on this machine that asks for somebody.
        assert (await asked(stage, "/ui/state", "rebound.example"))[0] == 403
        for header in ("X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1", "Via: 1.1 front"):
            status, body = await asked(stage, "/ui/state", LOOPBACK, header)
            assert (status, NO_DETAILS in body["reason"]) == (403, True)
        assert (await asked(stage, "/ui/config", "rebound.example"))[0] == 403


async def test_a_listener_of_its_own_shows_the_numbers_to_whoever_reaches_it() -> None:
    async with staged(webBindAddress="127.0.0.2", bindAddress="127.0.0.1") as stage:
        assert stage.proxy.web is not None
        reader, writer = await asyncio.open_connection("127.0.0.2", stage.proxy.web_port)
        writer.write(b"GET /ui/state HTTP/1.1\r\nHost: metrics.example\r\nConnection: close\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), patient(20))).startswith(b"HTTP/1.1 200")
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(LOOPBACK, stage.proxy.web_port)
        client = await stage.connected()
        await client.topics("demo/ns-00")


async def test_secrets_are_hidden_and_values_have_their_sources() -> None:
    keys: dict[str, Any] = {"brokerClientAuthenticationPlugin": "token", "brokerClientAuthenticationParameters": SECRET}
    async with staged(**keys, clusterName="blue") as stage:
        status, body = await asked(stage, "/ui/config")
        assert status == 200
        assert SECRET.partition(":")[2] not in json.dumps(body)
        assert body["keys"]["clusterName"]["value"] == "blue"
        assert body["keys"]["clusterName"]["source"] == "command line"
        state = (await asked(stage, "/ui/state"))[1]
        assert SECRET.partition(":")[2] not in json.dumps(state)


async def test_holders_and_waiters_are_those_of_the_limiters() -> None:
    async with staged(**TIGHT) as stage:
        await jammed(stage)
        state = (await asked(stage, "/ui/state"))[1]
        assert sum(row["held_bytes"] for row in state["holders"]["heap"]) == stage.heap.held
        assert sum(row["held_bytes"] for row in state["holders"]["direct"]) == stage.direct.held
        assert {row["line"] for row in state["waiters"]} == {"heap", "direct"}
        assert len(state["brokers"]) == 1


async def test_lists_that_wait_for_a_share_of_memory_are_shown_as_they_are_counted() -> None:
    keys: dict[str, Any] = {
        "maxTopicListInFlightHeapMemSizeMB": 4,
        "maxTopicListInFlightDirectMemSizeMB": 4,
        "topicListUnprovenReadersMemoryPercent": 50,
    }
    async with staged(**keys) as stage:
        for number in range(9):
            client = await stage.connected(SLOW_READER_RCVBUF)
            await client.ask_topics(namespace(number))
        shares = stage.proxy.memory.unproven
        await stage.until(lambda: shares.statistics().queue_size and not stage.direct.queue_size, "a wait for a share")
        assert stage.proxy.web is not None
        for second in range(2):
            stage.proxy.web.tick(stage.proxy.loop.time() + second)
        state = (await asked(stage, "/ui/state"))[1]
        waiting = sum(each["queue_size"] + each["growers_waiting"] for each in state["limiters"].values())
        assert waiting > 0
        assert len(state["waiters"]) == waiting == state["minutes"]["waiting"][-1]
        assert all(row["line"].startswith(("direct", "heap")) for row in state["waiters"])


def refuse_markup(stage: Stage) -> None:
    """Note a refusal of a client and a namespace whose names are markup."""
    error = OverLimit(ServerError.TooManyRequests, "too many", stage="list", asked=2, limit=1, key="someKey")
    stage.proxy.refusals.note_over_limit(error, '<b onclick="x">client', "<img src=x onerror=alert(1)>")


# --- in a browser ---------------------------------------------------------------------------------


def looked_at(url: str, profile: Path, scheme: str, size: str) -> tuple[str, list[str]]:
    """Open the page and give what it has become, and what was said on the console."""
    done = subprocess.run(
        [
            tool("chromium"),
            "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--virtual-time-budget={VIRTUAL_MILLIS}",
            "--enable-logging=stderr", f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
            f"--window-size={size}", "--dump-dom", url,
        ],
        capture_output=True, text=True, timeout=patient(120), check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("scheme", "size"), [("dark", "400,800"), ("light", "1280,900")])
async def test_a_browser_shows_memory_brokers_charts_and_configuration(scheme: str, size: str, tmp_path: Path) -> None:
    async with staged(webServicePageReuseMillis=1000) as stage:
        client = await stage.connected()
        await client.topics("demo/ns-00")
        assert stage.proxy.web is not None
        refuse_markup(stage)
        for second in range(30):
            stage.proxy.web.tick(stage.proxy.loop.time() + second)
        url = f"http://{LOOPBACK}:{stage.proxy.web_port}/"
        became, console = await asyncio.to_thread(looked_at, url, tmp_path / "profile", scheme, size)
        assert console == []
        assert 'data-ready="yes"' in became
        assert re.search(r'<main id="details">', became)
        assert re.search(r'role="meter" aria-label="Lists being decoded \(heap\)"', became)
        assert re.search(r'<td class="up"[^>]*>up</td>', became)
        assert "&lt;img src=x" in became
        assert "<img" not in became
        assert became.count("<svg") == 8
        assert became.count('class="area"') == 8
        assert re.search(r'<td class="key"[^>]*>clusterName</td><td[^>]*>test</td><td[^>]*>command line</td>', became)


@pytest.mark.timeout(300)
async def test_nothing_is_out_of_sight_on_a_phone_a_tablet_and_a_desktop_in_either_scheme(tmp_path: Path) -> None:
    async with staged(webServicePageReuseMillis=1000) as stage:
        error = OverLimit(
            ServerError.TooManyRequests, "too many of a kind", stage="list", asked=2, limit=1,
            key="maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis",
        )  # fmt: skip
        stage.proxy.refusals.note_over_limit(
            error, "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535", "a/" + 60 * "long"
        )
        await stage.connected()
        url, backgrounds = f"http://{LOOPBACK}:{stage.proxy.web_port}/", dict[str, set[str]]()
        async with browsing(url, tmp_path / "profile") as tab:
            await tab.until(SHOWN)
            for scheme in SCHEMES:
                for width, height in SCREENS:
                    await tab.screen(width, height, scheme)
                    assert await tab.value("innerWidth") == width
                    assert await tab.value(OUT_OF_SIGHT) == [], (scheme, width)
                    backgrounds.setdefault(scheme, set()).add(await tab.value(BACKGROUND))
        light, dark = backgrounds["light"], backgrounds["dark"]
        assert len(light) == len(dark) == len(light ^ dark) - 1 == 1


@pytest.mark.timeout(300)
async def test_a_browser_elsewhere_is_told_why_it_sees_no_numbers(tmp_path: Path) -> None:
    async with staged(enableProxyStatsEndpoints="false") as stage:
        url = f"http://{LOOPBACK}:{stage.proxy.web_port}/"
        became, _ = await asyncio.to_thread(looked_at, url, tmp_path / "profile", "light", "800,600")
        assert re.search(r'<main id="details" hidden="">', became)
        assert "switched off (enableProxyStatsEndpoints)" in became
        assert "/metrics" in became
