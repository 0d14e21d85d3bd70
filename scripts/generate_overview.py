"""Draw the picture of the README, docs/images/overview-light.svg and overview-dark.svg: one drawing, two themes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from scripts.generated import ROOT

WIDTH, HEIGHT = 1000, 430
FONT: Final = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of a drawing; the background is the reader's."""

    name: str
    text: str
    quiet: str
    line: str
    surface: str
    lane: str
    heap: str
    direct: str
    empty: str


THEMES: Final = (
    Theme("light", "#1f2328", "#59636e", "#8c959f", "#f6f8fa", "#ffffff", "#0969da", "#8250df", "#d1d9e0"),
    Theme("dark", "#f0f6fc", "#9198a1", "#6e7681", "#151b23", "#0d1117", "#4493f8", "#ab7df8", "#3d444d"),
)


def box(x: int, y: int, width: int, height: int, fill: str, theme: Theme) -> str:
    place = f'x="{x}" y="{y}" width="{width}" height="{height}"'
    return f'<rect {place} rx="8" fill="{fill}" stroke="{theme.line}"/>'


def text(x: int, y: int, words: str, color: str, *, size: int = 14, bold: bool = False, middle: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{color}"{weight}{anchor}>{escape(words)}</text>'


def named_box(x: int, y: int, width: int, lines: tuple[str, str], theme: Theme) -> Iterator[str]:
    """Yield a box of 62 with a name and a quiet line below it."""
    yield box(x, y, width, 62, theme.surface, theme)
    yield text(x + width // 2, y + 27, lines[0], theme.text, bold=True, middle=True)
    yield text(x + width // 2, y + 47, lines[1], theme.quiet, size=12, middle=True)


def arrow(x: int, y: int, to_x: int, to_y: int, theme: Theme, *, both: bool = False) -> str:
    start = ' marker-start="url(#tip)"' if both else ""
    ends = f'x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}"'
    return f'<line {ends} stroke="{theme.line}" stroke-width="1.6" marker-end="url(#tip)"{start}/>'


def gauge(x: int, y: int, part: float, color: str, names: tuple[str, str], theme: Theme) -> Iterator[str]:
    """Yield a bar of 170 that is filled in part, its name above and what it holds below."""
    yield text(x, y, names[0], color, size=13, bold=True)
    yield f'<rect x="{x}" y="{y + 8}" width="170" height="12" rx="6" fill="{theme.empty}"/>'
    yield f'<rect x="{x}" y="{y + 8}" width="{round(170 * part)}" height="12" rx="6" fill="{color}"/>'
    yield text(x, y + 38, names[1], theme.quiet, size=12)


def lanes(theme: Theme) -> Iterator[str]:
    """Yield the proxy: one lane for each way through it."""
    yield box(270, 16, 450, 398, theme.surface, theme)
    yield text(495, 44, "pulsar-proxy", theme.text, size=18, bold=True, middle=True)

    yield box(290, 60, 410, 74, theme.lane, theme)
    yield text(306, 88, "Relay", theme.text, bold=True)
    yield text(306, 112, "Messages pass both ways; a slow side holds one read.", theme.quiet, size=13)

    yield box(290, 148, 410, 162, theme.lane, theme)
    yield text(306, 176, "Lookups and topic lists", theme.text, bold=True)
    yield text(306, 198, "Equal requests share one question and one answer.", theme.quiet, size=13)
    # An answer comes from the right, and leaves to the left.
    yield from gauge(512, 234, 0.55, theme.heap, ("heap permit", "1. before the list is read"), theme)
    yield arrow(504, 248, 484, 248, theme)
    yield from gauge(306, 234, 0.8, theme.direct, ("direct permit", "2. until the client has it"), theme)
    yield text(306, 297, "Memory above a limit is never taken: requests wait.", theme.quiet, size=13)

    yield box(290, 324, 410, 74, theme.lane, theme)
    yield text(306, 352, "Web ports", theme.text, bold=True)
    yield text(306, 376, "Admin API passed on; /metrics, /readyz, /config.", theme.quiet, size=13)


def brokers(theme: Theme) -> Iterator[str]:
    yield box(804, 16, 180, 398, theme.surface, theme)
    yield text(894, 44, "Pulsar", theme.text, size=18, bold=True, middle=True)
    for y, name in ((72, "broker 1"), (198, "broker 2"), (324, "broker n")):
        yield box(824, y, 140, 62, theme.lane, theme)
        yield text(894, y + 36, name, theme.text, bold=True, middle=True)


def drawing(theme: Theme) -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"',
        f'     font-family="{escape(FONT)}">',
        "<title>Clients on the left, the proxy with its memory limits in the middle, brokers on the right</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        f' orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="{theme.line}"/></marker></defs>',
        *named_box(16, 66, 180, ("Producers, consumers", "pulsar://proxy:6650"), theme),
        *named_box(16, 198, 180, ("Pattern consumers", "thousands at once"), theme),
        *named_box(16, 330, 180, ("Admin tools", "http://proxy:8080"), theme),
        *lanes(theme),
        *brokers(theme),
        *(arrow(200, y, 284, y, theme, both=True) for y in (97, 229, 361)),
        *(arrow(706, y, 798, y, theme, both=True) for y in (97, 229, 361)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def files() -> Mapping[Path, str]:
    return {ROOT / f"docs/images/overview-{theme.name}.svg": drawing(theme) for theme in THEMES}
