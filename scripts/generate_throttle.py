"""Draw the pictures of docs/overload.md from runs of benchmarks/throttle_sim: one run, two themes."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.throttle_sim.draw import PALETTES, of_proxies, of_run
from benchmarks.throttle_sim.plant import Run
from benchmarks.throttle_sim.shapes import SHAPES
from scripts.generated import ROOT


def files() -> Mapping[Path, str]:
    found = {}
    for shape in SHAPES:
        points, free = Run(shape).play(), Run(shape, throttled=False).play()
        for palette in PALETTES:
            text = of_run(shape.title, points, free, palette, backlog=bool(shape.quota_bytes))
            found[ROOT / f"docs/images/throttle-{shape.name}-{palette.name}.svg"] = text
    step = next(shape for shape in SHAPES if shape.name == "step")
    # With a signal of a different age the proxies' lines do not hide each other.
    runs = [
        (f"K = {proxies}", Run(replace(step), proxies, delay).play())
        for proxies, delay in ((1, 1.0), (3, 3.0), (10, 5.0))
    ]
    for palette in PALETTES:
        title = "The same step through K = 1, 3 and 10 proxies; their signal is 1, 3 and 5 s old"
        found[ROOT / f"docs/images/throttle-proxies-{palette.name}.svg"] = of_proxies(title, runs, palette)
    return found
