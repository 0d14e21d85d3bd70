"""Draw docs/images/soak-light.svg and soak-dark.svg from the soaks in tests/soak/results, and their table in
docs/reliability.md."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from scripts.generated import ROOT, placed
from tests.soak.draw import PALETTES, Run, drawing

RESULTS: Final = ROOT / "tests" / "soak" / "results"
PAGE: Final = ROOT / "docs" / "reliability.md"
MARKS: Final = ("<!-- begin: written by scripts/generate_soak.py -->\n", "<!-- end -->")


def files() -> Mapping[Path, str]:
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("soak-*.json"), reverse=True)]
    runs = [Run.of(each) for each in found]
    images = ROOT / "docs" / "images"
    pictures = {images / f"soak-{palette.name}.svg": drawing(runs, palette) for palette in PALETTES}
    return {**pictures, PAGE: placed(PAGE, {MARKS: "\n".join(_table(found)) + "\n"})}


def _table(found: list[dict[str, Any]]) -> Iterator[str]:
    yield "| engine | day | minutes | actions a second | actions | failed | growth, MB/h | at most (95 %) | left |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|---|"
    for each in found:
        done, failed = sum(each["actions"].values()), sum(each["failed"].values())
        left = ", ".join(text for text in each["broken"] if not text.startswith("failed ")) or "nothing"
        yield (
            f"| {each['engine']} | {each['measured_on']} | {each['minutes']:g} | {each['pace']:g} | {done:,} "
            f"| {failed:,} | {each['bytes_an_hour'] / 1e6:+.2f} | {each['bytes_an_hour_at_most'] / 1e6:.2f} | {left} |"
        )
