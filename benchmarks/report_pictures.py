"""Draw the report of the pipeline's demo in a browser: `python -m benchmarks.report_pictures`.

Rule: what is drawn is what a browser shows of the page that `run` wrote; `--page` takes one that is there already.
"""

import argparse
import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.demo.show import main as demo
from tests.support.web.browser import Tab, browsing

IMAGES: Final = Path(__file__).resolve().parents[1] / "docs" / "images"
DRAWN: Final = "holders.every((holder) => document.getElementById(holder.dataset.chart).dataset.drawn)"


@dataclass(frozen=True)
class Picture:
    """A file, the screen that it is taken of, and what is looked at: a section, and the namespace chosen there."""

    name: str
    width: int
    height: int
    scheme: str
    section: str = ""
    namespace: str = ""


PICTURES: Final = (
    Picture("report-light.png", 1000, 1250, "light"),
    Picture("report-dark.png", 1000, 1250, "dark"),
    Picture("report-filtered.png", 1000, 1180, "light", "demand", "0"),
)


async def draw(page: Path, profile: Path) -> None:
    """Write the pictures of a page."""
    async with browsing(page.resolve().as_uri(), profile) as tab:
        await tab.until(f"document.readyState === 'complete' && {DRAWN}")
        for picture in PICTURES:
            await tab.screen(picture.width, picture.height, picture.scheme)
            await _look(tab, picture)
            (IMAGES / picture.name).write_bytes(await tab.picture())
            print(IMAGES / picture.name)


async def _look(tab: Tab, picture: Picture) -> None:
    if picture.namespace:
        await tab.value(
            "(() => { const select = document.getElementById('filter-namespace');"
            f" select.value = '{picture.namespace}'; select.dispatchEvent(new Event('change')); }})()"
        )
        await tab.until(f"document.querySelector('[data-choice^=\"{picture.namespace} \"]')")
    if picture.section:
        await tab.value(f"document.getElementById('{picture.section}').scrollIntoView()")
    # Two frames: what was asked for is on the screen then.
    await tab.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report_pictures", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="a report (default: that of the demo, made anew)")
    given = parser.parse_args().page
    with tempfile.TemporaryDirectory(prefix="pulsar-proxy-report-") as name:
        directory = Path(name)
        if given is None and (code := demo(["--dir", str(directory / "demo")])):
            return code
        page = given or directory / "demo" / "tables" / "report.html"
        asyncio.run(draw(page, directory / "profile"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
