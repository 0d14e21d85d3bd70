"""Draw the pictures of docs/overload.md from runs of benchmarks/throttle_sim: one run, two themes."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.throttle_sim.draw import PALETTES, of_proxies, of_run
from benchmarks.throttle_sim.plant import Run
from benchmarks.throttle_sim.shapes import MANY_SMALL, SHAPES
from scripts.generated import ROOT


def files() -> Mapping[Path, str]:
    found = {}
    for shape in SHAPES:
        points, free = Run(shape).play(), Run(shape, throttled=False).play()
        for palette in PALETTES:
            text = of_run(shape.title, points, free, palette, backlog=bool(shape.quota_bytes))
            found[ROOT / f"docs/images/throttle-{shape.name}-{palette.name}.svg"] = text
    runs = [(f"K = {proxies}", Run(MANY_SMALL, proxies).play()) for proxies in (1, 3, 10)]
    for palette in PALETTES:
        title = "40 topics of 0.25, 0.6, 0.25 MB/s through K = 1, 3, 10 proxies; the broker takes 12 MB/s"
        found[ROOT / f"docs/images/throttle-proxies-{palette.name}.svg"] = of_proxies(title, runs, palette)
    return found
