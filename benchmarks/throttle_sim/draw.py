"""Draw a run as SVG: pressure above, rates below, over time; the background is the reader's."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from benchmarks.throttle_sim.plant import Point

WIDTH, HEIGHT = 860, 400
LEFT, RIGHT = 62, 842
UPPER: Final = (54, 164)
LOWER: Final = (212, 362)
FONT: Final = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"


class Palette(NamedTuple):
    """The colours of a theme."""

    name: str
    text: str
    quiet: str
    grid: str
    lines: tuple[str, str, str]


PALETTES: Final = (
    Palette("light", "#1f2328", "#59636e", "#d1d9e0", ("#0969da", "#bc4c00", "#8250df")),
    Palette("dark", "#f0f6fc", "#9198a1", "#3d444d", ("#4493f8", "#db6d28", "#ab7df8")),
)


class Series(NamedTuple):
    """A line: its name, its values, and which colour it has."""

    name: str
    values: Sequence[float]
    color: int
    dashed: bool = False


def drawing(title: str, upper: Sequence[Series], lower: Sequence[Series], marks: Sequence[float], palette: Palette) -> (
    str
):  # fmt: skip
    """Return the picture: a panel of ratios with their marks, and a panel of MB/s."""
    seconds = len(upper[0].values)
    most = max(max(each.values) for each in lower) * 1.08
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"',
        f'     font-family="{escape(FONT)}">',
        f"<title>{escape(title)}</title>",
        _text(LEFT, 22, title, palette.text, size=14, bold=True),
        *_panel(upper, UPPER, 1.05, (0.0, *marks, 1.0), "{:.2f}", palette),
        *_panel(lower, LOWER, most / 1e6, _ticks(most / 1e6), "{:.0f}", palette),
        *_times(seconds, palette),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _panel(
    series: Sequence[Series], place: tuple[int, int], most: float, ticks: Sequence[float], form: str, palette: Palette
) -> Iterator[str]:
    top, bottom = place
    for tick in ticks:
        y = bottom - (bottom - top) * tick / most
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}" stroke="{palette.grid}"/>'
        yield _text(LEFT - 8, round(y) + 4, form.format(tick), palette.quiet, anchor="end")
    x = LEFT
    scale = 1.0 if most < 2 else 1e6
    for each in series:
        points = _points([value / scale for value in each.values], place, most)
        dash = ' stroke-dasharray="5 4"' if each.dashed else ""
        color = palette.quiet if each.color < 0 else palette.lines[each.color]
        yield f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.8"{dash}/>'
        yield f'<line x1="{x}" y1="{top - 14}" x2="{x + 22}" y2="{top - 14}" stroke="{color}" stroke-width="2"{dash}/>'
        yield _text(x + 28, top - 10, each.name, palette.text)
        x += 48 + 7 * len(each.name)


def _points(values: Sequence[float], place: tuple[int, int], most: float) -> str:
    top, bottom = place
    wide = (RIGHT - LEFT) / max(1, len(values) - 1)
    return " ".join(
        f"{LEFT + wide * number:.1f},{bottom - (bottom - top) * min(value, most) / most:.1f}"
        for number, value in enumerate(values)
    )


def _ticks(most: float) -> list[float]:
    step = next(step for step in (5, 10, 20, 50, 100, 200, 500) if most / step <= 6)
    return [float(tick) for tick in range(0, int(most) + 1, step)]


def _times(seconds: int, palette: Palette) -> Iterator[str]:
    for at in range(0, seconds + 1, 30):
        x = LEFT + (RIGHT - LEFT) * at / seconds
        yield _text(round(x), LOWER[1] + 20, f"{at} s", palette.quiet, anchor="middle")


def _text(x: int, y: int, words: str, color: str, *, size: int = 12, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{color}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'
    )


def of_run(title: str, points: Sequence[Point], free: Sequence[Point], palette: Palette, *, backlog: bool) -> str:
    """Return the picture of one run beside the same load without a throttle."""
    what = "backlog / quota" if backlog else "memory / limit"
    upper = (
        Series(what, [point.ratio for point in points], 0),
        Series("without the throttle", [min(1.05, point.ratio) for point in free], -1, dashed=True),
        Series("pressure", [point.pressure for point in points], 1),
    )
    lower = (
        Series("offered, MB/s", [point.offered for point in points], -1, dashed=True),
        Series("natural rate", [point.natural for point in points], 2),
        Series("allowed rate", [point.allowed for point in points], 0),
        Series("passed", [point.passed for point in points], 1),
    )
    return drawing(title, upper, lower, (0.75, 0.90) if backlog else (0.70, 0.85), palette)


def of_proxies(title: str, runs: Sequence[tuple[str, Sequence[Point]]], palette: Palette) -> str:
    """Return the picture of the same load through several numbers of proxies."""
    upper = [
        Series(f"memory, {name}", [point.ratio for point in run], number) for number, (name, run) in enumerate(runs)
    ]
    lower = [
        Series("offered, MB/s", [point.offered for point in runs[0][1]], -1, dashed=True),
        *(
            Series(f"passed, {name}", [point.passed for point in run], number)
            for number, (name, run) in enumerate(runs)
        ),
    ]
    return drawing(title, upper, lower, (0.70, 0.85), palette)
