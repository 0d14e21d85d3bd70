"""The report in a real browser that can reach nobody: nothing complained of, nothing cut off, on a desk and a phone.

Runs where Chromium is.
"""

import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.report.page import page_of
from pipeline.report.write import sections_of
from tests.support.patience import patient
from tests.support.pipeline.report_frames import facts
from tests.support.tools import tool

LONG = "# " + "a line of advice " * 20 + "/a/path" * 40 + "\n"
SCHEMES = {"dark": "0", "light": "1"}
WIDTHS = {"phone": 500, "desk": 1400}

pytestmark = pytest.mark.timeout(300)


def looked_at(page: Path, profile: Path, scheme: str = "light", width: int = 1400) -> tuple[str, list[str]]:
    """Open a page and give what it has become, and what was said on the console."""
    done = subprocess.run(
        [
            tool("chromium"),
            "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--window-size={width},900", "--enable-logging=stderr",
            f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", "--dump-dom", page.as_uri(),
        ],
        capture_output=True, text=True, timeout=patient(240), check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def written(page: Path) -> str:
    given = facts()
    text = page_of(given, sections_of(given), "tables", datetime(2026, 1, 2, tzinfo=UTC))
    page.write_text(text, encoding="utf-8")
    return text


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_page_is_shown_without_a_network_and_a_complaint(scheme: str, tmp_path: Path) -> None:
    text = written(tmp_path / "page.html")
    became, console = looked_at(tmp_path / "page.html", tmp_path / "profile", scheme)
    assert console == []
    assert became.count("<svg") == text.count("<svg") == 6


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_nothing_is_cut_off_and_the_page_does_not_move_sideways(width: int, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    question = (
        "for (const e of document.querySelectorAll('pre, .chart')) e.dataset.cut = e.scrollWidth > e.clientWidth;"
        "document.body.dataset.wide = document.documentElement.scrollWidth > innerWidth"
    )
    # Without the page's own policy, which would not let this question run.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", written(page))
    text = re.sub("(<pre[^>]*>)", rf"\1{LONG}", text)
    page.write_text(text.replace("</body>", f"<script>{question}</script></body>"), encoding="utf-8")
    became, _ = looked_at(page, tmp_path / "profile", width=width)
    assert set(re.findall(r'<(pre|div)[^>]*data-cut="(\w+)"', became)) == {("pre", "false"), ("div", "false")}
    assert re.findall(r'<body[^>]*data-wide="(\w+)"', became) == ["false"]
