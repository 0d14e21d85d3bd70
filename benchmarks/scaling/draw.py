"""Draw one storm over fleets of several sizes: clients served above, questions put below, over time."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from benchmarks.throttle_sim.draw import FONT, PALETTES, Palette

__all__ = ["PALETTES", "Run", "drawing"]

WIDTH, HEIGHT = 860, 420
LEFT, RIGHT = 62, 842
UPPER: Final = (58, 212)
LOWER: Final = (262, 382)
TICKS: Final = 6


class Run(NamedTuple):
    """A fleet: its name, and for each step the clients served and the questions put so far."""

    name: str
    step: float
    served: Sequence[float]
    asked: Sequence[float]


def drawing(title: str, clients: int, runs: Sequence[Run], palette: Palette) -> str:
    """Return the picture."""
    seconds = max(len(run.served) * run.step for run in runs)
    questions = max(run.asked[-1] for run in runs)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"',
        f'     font-family="{escape(FONT)}">',
        f"<title>{escape(title)}</title>",
        _text(LEFT, 22, title, palette.text, size=14, bold=True),
        *_legend(runs, palette),
        *_grid(UPPER, [f"{part * 25} %" for part in range(5)], "clients that have their list", palette),
        *_grid(
            LOWER, [f"{questions * part / 4:,.0f}" for part in range(5)], "questions to the brokers so far", palette
        ),
        *_times(seconds, palette),
    ]
    for number, run in enumerate(runs):
        color = palette.lines[number]
        parts.append(_line([each / clients for each in run.served], run.step, seconds, UPPER, color))
        parts.append(_line([each / questions for each in run.asked], run.step, seconds, LOWER, color))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(runs: Sequence[Run], palette: Palette) -> Iterator[str]:
    x = RIGHT - 130 * len(runs)
    for number, run in enumerate(runs):
        color, y = palette.lines[number], UPPER[0] - 14
        yield f'<line x1="{x}" y1="{y}" x2="{x + 22}" y2="{y}" stroke="{color}" stroke-width="2"/>'
        yield _text(x + 28, UPPER[0] - 10, run.name, palette.text)
        x += 130


def _grid(place: tuple[int, int], words: Sequence[str], what: str, palette: Palette) -> Iterator[str]:
    top, bottom = place
    yield _text(LEFT, top - 10, what, palette.quiet)
    for number, each in enumerate(words):
        y = bottom - (bottom - top) * number / (len(words) - 1)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}" stroke="{palette.grid}"/>'
        yield _text(LEFT - 8, round(y) + 4, each, palette.quiet, anchor="end")


def _times(seconds: float, palette: Palette) -> Iterator[str]:
    for tick in range(TICKS + 1):
        x = round(LEFT + (RIGHT - LEFT) * tick / TICKS)
        yield _text(x, LOWER[1] + 22, f"{seconds * tick / TICKS:.1f} s", palette.quiet, anchor="middle")


def _line(parts: Sequence[float], step: float, seconds: float, place: tuple[int, int], color: str) -> str:
    top, bottom = place
    # A point for each two pixels, and the last: more would be bytes that nobody sees.
    every = max(1, len(parts) // ((RIGHT - LEFT) // 2))
    points = [(0.0, 0.0), *((number + 1.0, parts[number]) for number in range(0, len(parts), every))]
    points.append((float(len(parts)), parts[-1]))
    wide = (RIGHT - LEFT) * step / seconds
    line = " ".join(f"{LEFT + wide * at:.1f},{bottom - (bottom - top) * min(1.0, value):.1f}" for at, value in points)
    return f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.8"/>'


def _text(x: int, y: int, words: str, color: str, *, size: int = 12, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{color}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'
    )
