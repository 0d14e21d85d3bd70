"""Draw docs/images/faults-light.svg and faults-dark.svg, and write the table of docs/reliability.md.

Both come from the results of the fault matrix: a stage by a fault, on both sides of the proxy.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from scripts.generate_overview import FONT, THEMES, Theme, text
from scripts.generated import ROOT, placed
from tests.faults.flows.flow import SIDES
from tests.faults.results import load, place_of
from tests.faults.table import STAGES, Cell, cells, no_sense
from tests.support.faults.kinds import Kind

PAGE: Final = ROOT / "docs/reliability.md"
MARKS: Final = (
    "<!-- faults: written by scripts/generate_faults.py, do not edit -->",
    "<!-- faults: end -->",
)
LEFT, TOP, ROW, COLUMN, SQUARE = 220, 92, 30, 94, 40
WIDTH: Final = LEFT + COLUMN * len(Kind) + 16
HEIGHT: Final = TOP + ROW * len(STAGES) + 46
FAILED: Final = {"light": "#cf222e", "dark": "#f85149"}
PASSED: Final = {"light": "#1a7f37", "dark": "#3fb950"}


class Square(NamedTuple):
    """The cells of a stage, a fault and a side: how many passed, failed, were not run yet, make no sense."""

    passed: int
    failed: int
    waiting: int
    senseless: int

    @property
    def words(self) -> str:
        """Return what a square says when the pointer is on it."""
        if not self.passed + self.failed + self.waiting:
            return "no such connection"
        found = ((self.passed, "passed"), (self.failed, "failed"), (self.waiting, "not run"))
        return ", ".join(f"{count} {word}" for count, word in found if count)


def squares(records: list[dict[str, Any]]) -> dict[tuple[str, str, str], Square]:
    """Return the squares by stage, fault and side."""
    results = {place_of(record): record for record in records}
    counted: dict[tuple[str, str, str], Counter[str]] = {}
    for cell in cells():
        counted.setdefault((cell.stage, cell.kind, cell.side), Counter())[_verdict(cell, results)] += 1
    names = Square._fields
    return {place: Square(*(found[name] for name in names)) for place, found in counted.items()}


def _verdict(cell: Cell, results: Mapping[tuple[str, ...], Mapping[str, Any]]) -> str:
    if no_sense(cell) is not None:
        return "senseless"
    record = results.get(tuple(cell))
    return "waiting" if record is None else "passed" if record["passed"] else "failed"


def drawing(theme: Theme, found: Mapping[tuple[str, str, str], Square]) -> str:
    """Return the picture: a pair of squares for each stage and fault, client's side and broker's side."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"',
        f'     font-family="{FONT}">',
        "<title>The fault matrix: each stage with each fault, between client and proxy and between proxy and broker"
        "</title>",
        text(16, 34, "Fault matrix", theme.text, size=16, bold=True),
        text(16, 56, "left: client-proxy, right: proxy-broker", theme.quiet, size=12),
    ]
    for column, kind in enumerate(Kind):
        x = LEFT + column * COLUMN + COLUMN // 2 - 4
        parts.append(text(x, TOP - 16, kind, theme.text, size=13, bold=True, middle=True))
    for row, stage in enumerate(STAGES):
        y = TOP + row * ROW
        parts.append(text(16, y + 17, stage.name, theme.text, size=13))
        for column, kind in enumerate(Kind):
            for number, side in enumerate(SIDES):
                x = LEFT + column * COLUMN + number * (SQUARE + 4)
                parts += _drawn(x, y, found[stage.name, kind, side], theme)
    total = [sum(square[number] for square in found.values()) for number in range(4)]
    summary = f"{total[0]} cells passed, {total[1]} failed, {total[2]} not run; {total[3]} would repeat another cell"
    parts += [text(16, HEIGHT - 14, f"{summary}, or have no connection to strike", theme.quiet, size=12), "</svg>"]
    return "\n".join(parts) + "\n"


def _drawn(x: int, y: int, square: Square, theme: Theme) -> Iterator[str]:
    run = square.passed + square.failed
    color = FAILED[theme.name] if square.failed else PASSED[theme.name] if run else theme.empty
    count = str(square.passed) if not square.failed else f"{square.passed}/{run}"
    if not run:
        count = "-" if not square.waiting else "?"
    yield f"<g><title>{square.words}</title>"
    yield f'<rect x="{x}" y="{y}" width="{SQUARE}" height="24" rx="4" fill="{color}" fill-opacity="0.85"/>'
    yield text(x + SQUARE // 2, y + 16, count, "#ffffff" if run else theme.quiet, size=12, middle=True)
    yield "</g>"


def table(records: list[dict[str, Any]]) -> str:
    """Return how the cells of each fault and side ended: outcomes of the client, causes of ends."""
    lines = ["| fault | where | cells | the client's end | ends of connections by cause |", "|---|---|--:|---|---|"]
    for kind in Kind:
        for side in SIDES:
            chosen = [record for record in records if (record["kind"], record["side"]) == (kind, side)]
            outcomes = Counter(record["outcome"] for record in chosen)
            causes: Counter[str] = Counter()
            for record in chosen:
                causes.update(record["causes"])
            lines.append(f"| {kind} | {side} | {len(chosen)} | {_sums(outcomes)} | {_sums(causes, code=True)} |")
    return "\n".join(lines)


def _sums(counted: Mapping[str, int], *, code: bool = False) -> str:
    mark = "`" if code else ""
    return ", ".join(f"{mark}{name}{mark} {counted[name]}" for name in sorted(counted)) or "-"


def files() -> Mapping[Path, str]:
    records = load()
    found = squares(records)
    drawn = {ROOT / f"docs/images/faults-{theme.name}.svg": drawing(theme, found) for theme in THEMES}
    return {**drawn, PAGE: placed(PAGE, {MARKS: f"\n\n{table(records)}\n\n"})}
