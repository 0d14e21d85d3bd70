"""Draw docs/images/performance-light.svg and performance-dark.svg from the ladder's results: throughput and processor
time of a unit beside the peers."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from xml.sax.saxutils import escape

from benchmarks.ladder.results import load
from scripts.generate_overview import FONT, THEMES, Theme, text
from scripts.generated import ROOT

WIDTH: Final = 1000
NAMES, LEFT, RIGHT = 16, 190, 600
BAR, GAP, LONGEST = 18, 6, 245
JAVA: Final = "06"


class Part(NamedTuple):
    """A group of bars: a scenario, its name for readers, and the row that shows this proxy as it is installed."""

    scenario: str
    name: str
    detail: str
    ours: str


PARTS: Final = (
    Part("relay-echo", "Relay", "1 KiB, 50 connections", "02"),
    Part("relay-64k", "Relay", "64 KiB, 4 connections", "02"),
    Part("lists", "Topic lists", "1 MB, a namespace each", "04"),
    Part("lists-storm-200", "Topic lists", "1 MB, one namespace", "04"),
)
# Rows in the order of their bars; HAProxy is drawn as shipped. HAProxy and a bare relay admit and bound nothing.
PEERS: Final = ((JAVA, "Java proxy"), ("07", "HAProxy"), ("00c", "bare copy"), ("00s", "bare splice"))


class Bar(NamedTuple):
    """A candidate in one scenario; None: not measured."""

    name: str
    throughput: float | None
    processor_micros: float | None


def median(row: Mapping[str, Any], quantity: str) -> float | None:
    found = row.get(quantity)
    return None if found is None else float(found["median"])


def bars(result: Mapping[str, Any], ours: str) -> list[Bar]:
    rows = [(ours, "this proxy"), *((row, name) for row, name in PEERS if row in result["rows"])]
    quantity = result["quantity"]
    return [
        Bar(name, median(result["rows"][row], quantity), median(result["rows"][row], "cpu_us")) for row, name in rows
    ]


def amount(value: float, unit: str) -> str:
    """Return a figure with its unit, to three digits."""
    digits = 0 if value >= 100 else 1
    return f"{value:,.{digits}f} {unit}"


def panel(x: int, y: int, values: list[float | None], unit: str, theme: Theme) -> Iterator[str]:
    """Yield one bar for each value; the longest has the whole width, the first is this proxy."""
    known = [value for value in values if value is not None]
    longest = max(known, default=1.0)
    for number, value in enumerate(values):
        top = y + number * (BAR + GAP)
        if value is None:
            yield text(x, top + 13, "not measured", theme.quiet, size=12)
            continue
        width = max(2, round(LONGEST * value / longest))
        color = theme.heap if number == 0 else theme.line
        yield f'<rect x="{x}" y="{top}" width="{width}" height="{BAR}" rx="3" fill="{color}"/>'
        yield text(x + width + 8, top + 13, amount(value, unit), theme.text, size=12, bold=number == 0)


def group(part: Part, y: int, theme: Theme) -> tuple[list[str], int]:
    """Return the drawing of a scenario, and where the next one begins."""
    [result] = load([part.scenario])
    candidates = bars(result, part.ours)
    unit = "MB" if result["quantity"] == "mb_per_second" else "lists" if part.ours == "04" else "messages"
    parts = [text(NAMES, y - 12, f"{part.name}: {part.detail}", theme.text, bold=True)]
    parts += [
        text(NAMES, y + number * (BAR + GAP) + 13, bar.name, theme.quiet, size=13)
        for number, bar in enumerate(candidates)
    ]
    each = {"MB": "µs a MB", "lists": "µs a list", "messages": "µs a message"}[unit]
    parts += panel(LEFT, y, [bar.throughput for bar in candidates], f"{unit}/s", theme)
    parts += panel(RIGHT, y, [bar.processor_micros for bar in candidates], each, theme)
    return parts, y + len(candidates) * (BAR + GAP) + 46


def drawing(theme: Theme) -> str:
    y, groups = 92, []
    for part in PARTS:
        drawn, y = group(part, y, theme)
        groups += drawn
    title = "Throughput and processor time of a unit: this proxy, the Java proxy, HAProxy and a bare relay"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y - 30}" role="img"',
        f'     font-family="{escape(FONT)}">',
        f"<title>{title}</title>",
        text(LEFT, 34, "Throughput: longer is better", theme.text, size=16, bold=True),
        text(RIGHT, 34, "Processor time of a unit: shorter is better", theme.text, size=16, bold=True),
        *groups,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def files() -> Mapping[Path, str]:
    return {ROOT / f"docs/images/performance-{theme.name}.svg": drawing(theme) for theme in THEMES}
