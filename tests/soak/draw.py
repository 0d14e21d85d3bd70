"""Draw soaks as SVG: resident memory above, descriptors below, over time; the background is the reader's."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 860, 400
LEFT, RIGHT = 62, 842
UPPER: Final = (54, 232)
LOWER: Final = (286, 362)
FONT: Final = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
MIB: Final = 1024 * 1024


class Palette(NamedTuple):
    """The colours of a theme."""

    name: str
    text: str
    quiet: str
    grid: str
    lines: tuple[str, str]


PALETTES: Final = (
    Palette("light", "#1f2328", "#59636e", "#d1d9e0", ("#0969da", "#bc4c00")),
    Palette("dark", "#f0f6fc", "#9198a1", "#3d444d", ("#4493f8", "#db6d28")),
)


class Run(NamedTuple):
    """What is drawn of one soak: its engine, (minutes, MiB, descriptors), and quiet moments as (minutes, MiB)."""

    engine: str
    samples: Sequence[tuple[float, float, int]]
    quiet: Sequence[tuple[float, float]]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """Read a run out of its report."""
        return cls(
            found["engine"],
            [(seconds / 60, resident / MIB, files) for seconds, resident, files in found["samples"]],
            [(each["seconds"] / 60, each["resident_bytes"] / MIB) for each in found["quiet"]],
        )


def drawing(runs: Sequence[Run], palette: Palette) -> str:
    """Return the picture of one run or two, each with a colour."""
    title = "Resident memory and open files of a proxy under mixed load"
    minutes = max([0.1, *(each[0] for run in runs for each in run.samples)])
    memory = _ceiling(
        [each[1] for run in runs for each in run.samples] + [each[1] for run in runs for each in run.quiet]
    )
    files = _ceiling([each[2] for run in runs for each in run.samples])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"',
        f'     font-family="{escape(FONT)}">',
        f"<title>{escape(title)}</title>",
        _text(LEFT, 22, title, palette.text, size=14, bold=True),
        *_legend(runs, palette),
        *_grid(UPPER, memory, "MiB", palette),
        *_grid(LOWER, files, "open files", palette),
        *_times(minutes, palette),
    ]
    for run, color in zip(runs, palette.lines, strict=False):
        parts.append(_line([(each[0], each[1]) for each in run.samples], minutes, memory, UPPER, color))
        parts.append(_line([(each[0], float(each[2])) for each in run.samples], minutes, files, LOWER, color))
        for at, value in run.quiet:
            x, y = _point(at, value, minutes, memory, UPPER)
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="none" stroke="{color}" stroke-width="2"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(runs: Sequence[Run], palette: Palette) -> Iterator[str]:
    x = LEFT
    for run, color in zip(runs, palette.lines, strict=False):
        yield f'<line x1="{x}" y1="40" x2="{x + 22}" y2="40" stroke="{color}" stroke-width="2"/>'
        yield _text(x + 28, 44, f"relayEngine={run.engine}", palette.text)
        x += 190
    yield f'<circle cx="{x + 5}" cy="40" r="4" fill="none" stroke="{palette.quiet}" stroke-width="2"/>'
    yield _text(x + 16, 44, "without any client", palette.text)


def _grid(place: tuple[int, int], most: float, unit: str, palette: Palette) -> Iterator[str]:
    top, bottom = place
    for part in range(5):
        y = bottom - (bottom - top) * part / 4
        if place == LOWER and part % 2:
            continue
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}" stroke="{palette.grid}"/>'
        yield _text(LEFT - 8, round(y) + 4, f"{most * part / 4:g}", palette.quiet, anchor="end")
    yield _text(RIGHT, top - 8, unit, palette.quiet, anchor="end")


def _times(minutes: float, palette: Palette) -> Iterator[str]:
    for part in range(7):
        x = round(LEFT + (RIGHT - LEFT) * part / 6)
        yield _text(x, LOWER[1] + 20, f"{minutes * part / 6:.3g} min", palette.quiet, anchor="middle")


def _line(
    points: Sequence[tuple[float, float]], minutes: float, most: float, place: tuple[int, int], color: str
) -> str:
    # A point for each pixel's width: more would be bytes that nobody sees.
    step = max(1, len(points) // (RIGHT - LEFT))
    places = (_point(at, value, minutes, most, place) for at, value in points[::step])
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>'


def _point(at: float, value: float, minutes: float, most: float, place: tuple[int, int]) -> tuple[float, float]:
    top, bottom = place
    return LEFT + (RIGHT - LEFT) * at / minutes, bottom - (bottom - top) * value / most


def _ceiling(values: Sequence[float]) -> float:
    most = max([1.0, *values])
    return next(step for step in (4, 20, 40, 80, 100, 120, 160, 200, 400, 800, 1600, 10**9) if step >= most)


def _text(x: int, y: int, words: str, color: str, *, size: int = 12, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{color}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'
    )
