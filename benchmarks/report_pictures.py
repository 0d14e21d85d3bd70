"""Draw the report in a browser: `python -m benchmarks.report_pictures`.

Rule: what is drawn is what a browser shows of the page that `run` wrote of synthetic events, the same for the same seed
whatever the machine does meanwhile; `--page` takes a page that is there already.
"""

import argparse
import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.pipeline.generate.output import write_files
from benchmarks.pipeline.generate.settings import GenerateSettings
from pipeline.cli import main as run_job
from pipeline.core.model import Limits
from tests.support.web.browser import Tab, browsing

IMAGES: Final = Path(__file__).resolve().parents[1] / "docs" / "images"
DRAWN: Final = "holders.every((holder) => document.getElementById(holder.dataset.chart).dataset.drawn)"


# A storm under limits that are too small for it.
EVENTS: Final = GenerateSettings(
    16_000, proxies=3, clients=12_000, tenants=12, namespaces=80, rate=60.0, storm_share=0.75, simulate=True,
    limits=Limits(2 << 20, 2 << 20, heap_timeout_us=400_000, direct_timeout_us=400_000, coalescing=False),
)  # fmt: skip
JOBS: Final = (
    "--load", "1", "--fleet", "1,2", "--target-load", "1", "--master", "local[2]", "--conf", "spark.driver.memory=1g",
    "--conf", "spark.sql.shuffle.partitions=2",
)  # fmt: skip


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


async def draw(url: str, profile: Path) -> None:
    """Write the pictures of a page."""
    async with browsing(url, profile) as tab:
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
    # After two frames the picture is on the screen.
    await tab.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def made(directory: Path) -> Path:
    """Make events, and a page of them; raises SystemExit if a job fails."""
    write_files(EVENTS, directory / "events", lambda _: None)
    code = run_job(["run", "--source", str(directory / "events"), "--out", str(directory / "tables"), *JOBS])
    if code:
        raise SystemExit(code)
    return directory / "tables" / "report.html"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report_pictures", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="a report (default: one of synthetic events)")
    given = parser.parse_args().page
    with tempfile.TemporaryDirectory(prefix="pulsar-proxy-report-") as name:
        directory = Path(name)
        page = given or made(directory)
        asyncio.run(draw(page.resolve().as_uri(), directory / "profile"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
