"""Draw the panels of the dashboard as one page, in the order and widths of the dashboard.

Small data in, a Vega-Lite specification and a PNG out. Rule: it looks like the dashboard and is not one, so the caption
says where the lines come from.
"""

import struct
import zlib
from typing import Any, Final

import altair as alt
import pandas as pd
import vl_convert

from scripts.dashboard_table import COLUMNS

PAGE_WIDTH: Final = 1500
PANEL_HEIGHT: Final = 120
# The part of a panel's width that its axis takes.
MARGIN: Final = 70
AXIS: Final = MARGIN - 14
# Bytes are drawn as MiB, or the ticks would be at powers of ten.
SCALES: Final = {"bytes": 1_048_576, "Bps": 1_048_576}
SCALE: Final = 1.0
VEGALITE: Final = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
INK, PAPER, GRID, SHEET = "#ccccdc", "#181b1f", "#2c3037", "#111217"
COLOURS: Final = (
    "#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#37872d", "#fade2a", "#c4162a",
)  # fmt: skip
FONT: Final = "Inter, 'DejaVu Sans', sans-serif"
MOST_LINES: Final = 10

Json = dict[str, Any]


def png(recorded: Json) -> bytes:
    """Draw everything as PNG."""
    seconds = int(recorded["end"] - recorded["begin"])
    rows = [part for row in recorded["rows"] for part in _row(row, seconds)]
    page = alt.vconcat(*rows, spacing=8).resolve_scale(color="independent").properties(
        title=alt.Title(
            "Pulsar / Proxy (memory-bounded)", color=INK, font=FONT, fontSize=18, anchor="start", offset=14,
            subtitle="the dashboard's own queries, answered by Prometheus during three storms of the demo's clients",
            subtitleColor=INK, subtitleFont=FONT,
        )
    )  # fmt: skip
    spec = page.configure(**_config()).to_dict()
    return _packed(vl_convert.vegalite_to_png(spec, vl_version=VEGALITE, scale=SCALE))


def _packed(drawn: bytes) -> bytes:
    """Compress a PNG as well as can be, a third of what the drawing library makes of it (RFC 2083, 3.2)."""
    place, pixels, chunks = 8, b"", []
    while place < len(drawn):
        length, kind = struct.unpack_from(">I4s", drawn, place)
        data, place = drawn[place + 8 : place + 8 + length], place + 12 + length
        if kind == b"IDAT":
            pixels += data
        else:
            chunks.append((kind, data))
    chunks.insert(-1, (b"IDAT", zlib.compress(zlib.decompress(pixels), 9)))
    written = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return drawn[:8] + b"".join(written)


def _row(row: Json, seconds: int) -> list[Any]:
    """Return the title of a row, and its panels in lines of at most 24 columns."""
    head = alt.Chart(pd.DataFrame({"text": [row["question"]]})).mark_text(
        align="left", baseline="middle", fontSize=15, fontWeight="bold", color=INK, font=FONT
    )
    lines: list[list[Json]] = [[]]
    for panel in row["panels"]:
        if sum(other["width"] for other in lines[-1]) + panel["width"] > COLUMNS:
            lines.append([])
        lines[-1].append(panel)
    # The panels below have their axes to the left of their views, and their titles above these.
    title = head.encode(text="text:N", x=alt.value(-AXIS), y=alt.value(8)).properties(
        width=PAGE_WIDTH, height=16, view=alt.ViewConfig(fill=SHEET, stroke=None)
    )
    return [title, *(_side_by_side(line, seconds) for line in lines)]


def _side_by_side(panels: list[Json], seconds: int) -> Any:
    drawn = []
    for panel in panels:
        width = PAGE_WIDTH * panel["width"] // COLUMNS - MARGIN
        drawn.append(_number(panel, width) if panel["kind"] == "stat" else _lines(panel, width, seconds))
    return alt.hconcat(*drawn, spacing=12).resolve_scale(color="independent")


def _number(panel: Json, width: int) -> Any:
    """Draw the largest value of a panel that shows one number: the moment to look at is the storm."""
    values = [value for line in panel["lines"] for _, value in line["points"]]
    text = _worded(max(values), panel["unit"]) if values else "no data"
    return (
        alt.Chart(pd.DataFrame({"text": [text]}))
        .mark_text(fontSize=28, color=COLOURS[0], font=FONT)
        .encode(text="text:N", x=alt.value(width / 2), y=alt.value(25))
        .properties(width=width, height=50, title=f"{panel['title']} (most)")
    )


def _lines(panel: Json, width: int, seconds: int) -> Any:
    kept = _kept(panel)
    names = [line["name"] for line in kept]
    frame = pd.DataFrame(
        [(line["name"], at, value / SCALES.get(panel["unit"], 1)) for line in kept for at, value in line["points"]],
        columns=["line", "seconds", "value"],
    )
    chart = alt.Chart(frame)
    drawn = chart.mark_area(opacity=0.6) if panel["stacked"] else chart.mark_line(strokeWidth=1.4)
    colours = alt.Scale(domain=names, range=[COLOURS[place % len(COLOURS)] for place in range(len(names))])
    symbol = "square" if panel["stacked"] else "stroke"
    legend = alt.Legend(title=None, columns=max(1, width // 125), symbolType=symbol) if names else None
    return drawn.encode(
        x=alt.X(
            "seconds:Q",
            scale=alt.Scale(domain=[0, seconds], nice=False),
            axis=alt.Axis(title=None, labelExpr="datum.value + ' s'", tickCount=6),
        ),
        y=alt.Y("value:Q", stack="zero" if panel["stacked"] else None, axis=_axis(panel["unit"]), scale=_scale(panel)),
        color=alt.Color("line:N", scale=colours, legend=legend),
    ).properties(width=width, height=PANEL_HEIGHT, title=panel["title"])


def _kept(panel: Json) -> list[Json]:
    """Choose the lines that say most, of those that a person can tell apart: not all the zeros, if others are not."""
    lines = [line | {"most": max((value for _, value in line["points"]), default=0)} for line in panel["lines"]]
    lines = [line for line in lines if line["points"]]
    busy = [line for line in lines if line["most"] > 0] if panel["stacked"] else lines
    return sorted(busy or lines, key=lambda line: line["most"], reverse=True)[:MOST_LINES]


def _scale(panel: Json) -> Any:
    if panel["most"]:
        return alt.Scale(domain=[0, panel["most"]], clamp=True)
    if not any(line["points"] and line["most"] > 0 for line in _kept(panel)):
        return alt.Scale(domain=[0, 1])
    return alt.Scale(domainMin=0, nice=True)


def _axis(unit: str) -> Any:
    """Return an axis of the same width for all panels, so that they stand below each other."""
    return alt.Axis(labelExpr=_label(unit), tickCount=4, title=None, minExtent=AXIS, maxExtent=AXIS)


def _label(unit: str) -> str:
    """Return Vega's expression for a number on the axis, in Grafana's words."""
    number = "(abs(datum.value) < 1 ? format(datum.value, '~g') : format(datum.value, '~s'))"
    return {
        "bytes": "format(datum.value, '~f') + ' MiB'",
        "Bps": "format(datum.value, '~f') + ' MiB/s'",
        "percentunit": "format(datum.value, '.0%')",
        "ms": "datum.value < 1000 ? format(datum.value, '~f') + ' ms' : format(datum.value / 1000, '~f') + ' s'",
        "s": "datum.value < 1 ? format(datum.value * 1000, '~f') + ' ms' : format(datum.value, '~f') + ' s'",
    }.get(unit, f"{number} + '{_suffix(unit)}'")


def _suffix(unit: str) -> str:
    return {"reqps": " req/s", "ops": " ops/s", "cps": " /s", "suffix: d": " d"}.get(unit, "")


def _worded(value: float, unit: str) -> str:
    if unit == "ms" and value >= 1000:
        return f"{value / 1000:,.2f} s"
    return f"{value:,.0f} ms" if unit == "ms" else f"{value:,.0f}{_suffix(unit)}"


def _config() -> Json:
    text = {"labelColor": INK, "titleColor": INK, "labelFont": FONT, "titleFont": FONT}
    return {
        "background": SHEET,
        "padding": 16,
        "view": {"fill": PAPER, "stroke": "#24272d"},
        "axis": {**text, "gridColor": GRID, "domain": False, "tickColor": GRID, "labelFontSize": 10},
        "legend": {**text, "orient": "bottom", "labelFontSize": 10, "labelLimit": 200},
        "title": {"color": INK, "font": FONT, "fontSize": 12, "anchor": "start", "fontWeight": "normal"},
        "concat": {"spacing": 10},
    }
