"""The report in a real browser that can reach nobody: every chart drawn, nothing complained of, in both schemes.

Runs where Chromium is; elsewhere test_page draws each chart with the same Vega, without a browser.
"""

import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline.report.page import page_of
from pipeline.report.write import sections_of
from tests.support.patience import patient
from tests.support.pipeline.report_frames import HOSTILE, facts
from tests.support.tools import tool
from tests.support.web.browser import Tab, browsing

# Time of the page, not of the machine: it passes as soon as nothing is left to do.
VIRTUAL_MILLIS = 30_000
LONG = "# " + "a line of advice " * 20 + "/a/path" * 40 + "\n"
SCHEMES = {"dark": "0", "light": "1"}

pytestmark = pytest.mark.timeout(300)


def looked_at(page: Path, profile: Path, scheme: str) -> tuple[str, list[str]]:
    """Open a page and give what it has become, and what was said on the console."""
    done = subprocess.run(
        [
            tool("chromium"),
            "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--virtual-time-budget={VIRTUAL_MILLIS}",
            "--enable-logging=stderr", f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True, text=True, timeout=patient(240), check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_chart_is_drawn_without_a_network(scheme: str, tmp_path: Path) -> None:
    given = facts()
    sections = sections_of(given)
    page = tmp_path / "page.html"
    page.write_text(page_of(given, sections, datetime(2026, 1, 2, tzinfo=UTC)), encoding="utf-8")
    became, console = looked_at(page, tmp_path / "profile", scheme)
    assert console == []
    charts = {chart.name for section in sections for chart in section.charts}
    assert set(re.findall(r'id="([\w-]+)"[^>]*data-drawn="yes"', became)) == charts


def test_no_line_to_copy_is_cut_off(tmp_path: Path) -> None:
    given = facts()
    text = page_of(given, sections_of(given), datetime(2026, 1, 2, tzinfo=UTC))
    assert len(LONG) > 200
    question = "for (const e of document.querySelectorAll('pre')) e.dataset.cut = e.scrollWidth > e.clientWidth"
    # Without the page's own policy, which would not let this question run.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    page = tmp_path / "page.html"
    page.write_text(
        re.sub("(<pre[^>]*>)", rf"\1{LONG}", text).replace("</body>", f"<script>{question}</script></body>"),
        encoding="utf-8",
    )
    became, _ = looked_at(page, tmp_path / "profile", "light")
    assert set(re.findall(r'<pre[^>]*data-cut="(\w+)"', became)) == {"false"}


FILTERED = {
    "memory-heap", "memory-direct", "fullness", "waits-over-time", "refusals-over-time", "storm-timeline",
}  # fmt: skip
# What a chart draws, as its marks tell it to those who cannot see them.
MARKS = "[...document.querySelectorAll('#{} svg [aria-label]')].map((mark) => mark.getAttribute('aria-label'))"


@asynccontextmanager
async def shown(directory: Path) -> AsyncIterator[Tab]:
    given = facts()
    page = directory / "page.html"
    page.write_text(page_of(given, sections_of(given), datetime(2026, 1, 2, tzinfo=UTC)), encoding="utf-8")
    async with browsing(page.as_uri(), directory / "profile") as tab:
        await tab.until("document.querySelectorAll('[data-drawn]').length === holders.length")
        yield tab


async def chosen(tab: Tab, what: str, keys: str, key_code: int, choice: str) -> None:
    """Choose by the keyboard, and wait for the charts."""
    await tab.value(f"document.getElementById('filter-{what}').focus()")
    for kind in ("keyDown", "keyUp"):
        await tab.call("Input.dispatchKeyEvent", type=kind, key=keys, code=keys, windowsVirtualKeyCode=key_code)
    places = (
        "holders.filter((one) => 'filtered' in one.dataset).map((one) => document.getElementById(one.dataset.chart))"
    )
    await tab.until(f"{places}.every((place) => place.dataset.choice === '{choice}')")


async def marks(tab: Tab, chart: str) -> str:
    found: list[Any] = await tab.value(MARKS.format(chart))
    return "\n".join(map(str, found))


@pytest.mark.asyncio
async def test_a_choice_by_the_keyboard_changes_each_chart_over_time_and_no_other(tmp_path: Path) -> None:
    async with shown(tmp_path) as tab:
        whole = {name: await marks(tab, name) for name in FILTERED}
        assert await tab.value("[...document.querySelectorAll('.of-all')].every((note) => note.hidden)")
        await chosen(tab, "namespace", "ArrowDown", 40, "0 -1")
        assert (
            set(await tab.value("[...document.querySelectorAll('[data-choice=\"0 -1\"]')].map((e) => e.id)"))
            == FILTERED
        )
        notes = await tab.value("[...document.querySelectorAll('.of-all')].map((note) => note.hidden)")
        assert notes
        assert not any(notes)
        changed = {name: await marks(tab, name) for name in FILTERED}
        assert [name for name in FILTERED if changed[name] == whole[name]] == []
        assert "top: 5; reason: timeout in heap" in changed["refusals-over-time"]
        assert await tab.value("document.getElementById('filtered').textContent") == (
            f"Charts over time show {HOSTILE} at all proxies, by intervals of 2 s. Texts, tables and other charts show"
            " all."
        )
        label = await tab.value("document.getElementById('refusals-over-time').getAttribute('aria-label')")
        assert label == f"Requests that were not answered of {HOSTILE} at all proxies."
        await chosen(tab, "namespace", "ArrowUp", 38, "-1 -1")
        assert {name: await marks(tab, name) for name in FILTERED} == whole
        assert await tab.value("document.getElementById('filtered').textContent") == (
            "Charts over time show all namespaces at all proxies."
        )
