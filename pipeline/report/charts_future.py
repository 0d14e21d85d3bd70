"""Charts about other limits: the surface of a grid, calibration, the trade-off; and the bars of costs.

Small data frames in, Vega-Lite specifications out; the rule is that of `charts`.
"""

from typing import Any, Final

import altair as alt
import pandas as pd

from pipeline.report import colours
from pipeline.report.charts import HEIGHT, WIDTH, chart, time_axis
from pipeline.report.clock import Clock
from pipeline.report.parts import Chart

__all__ = ["MOST_BARS", "bars", "calibration", "marks_over_time", "surface", "trade_off"]

MOST_BARS: Final = 10
_DARK_CELL: Final = "#ffffff"
_LIGHT_CELL: Final = "#1d2127"
_CELL: Final = 24


def surface(frame: pd.DataFrame, measure: str, alt_text: str) -> Chart:
    """Draw one measure (refused or wait) of a grid: a field for each load and fleet.

    Columns: heap_mib, direct_mib, load, fleet, value, label; value is a share of one, or seconds.
    """
    refused = measure == "refused"
    most = 1.0 if refused else max(float(frame["value"].max()), 0.001)
    base = alt.Chart(frame).encode(
        x=alt.X("heap_mib:O", title="heap MiB", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("direct_mib:O", title="direct MiB", sort="descending"),
    )
    cells = base.mark_rect(stroke="#80808060").encode(
        color=alt.Color("value:Q", scale=_scale(refused, most), legend=None),
        tooltip=["heap_mib:Q", "direct_mib:Q", "load:Q", "fleet:Q", alt.Tooltip("label:N", title=measure)],
    )
    text = base.mark_text(fontSize=10).encode(
        text="label:N",
        color=alt.condition(f"datum.value > {0.6 * most}", alt.value(_DARK_CELL), alt.value(_LIGHT_CELL)),
    )
    loads, heaps = frame["load"].nunique(), frame["heap_mib"].nunique()
    width = max((WIDTH - 110) // max(loads, 1) - 12, heaps * 34)
    drawing = (
        alt.layer(cells, text)
        .properties(width=width, height=_CELL * frame["direct_mib"].nunique())
        .facet(
            column=alt.Column("load:O", title=None, header=alt.Header(labelExpr="'load ' + datum.value + ' x'")),
            row=alt.Row("fleet:O", title=None, header=alt.Header(labelExpr="datum.value + ' x the proxies'")),
            spacing=12,
        )
    )
    return chart(f"whatif-{measure}", *_SURFACE[measure][:1], drawing, alt_text, _SURFACE[measure][1])


def _scale(refused: bool, most: float) -> alt.Scale:
    if refused:
        return alt.Scale(range=["#fff7ef", "#fdae6b", "#d94801", "#7f2704"], domain=_quarters(most))
    return alt.Scale(range=["#f7f5fb", "#bcbddc", "#807dba", "#54278f"], domain=_quarters(most))


def _quarters(most: float) -> list[float]:
    return [0, most / 3, 2 * most / 3, most]


_SURFACE: Final = {
    "refused": (
        "Share of requests refused under other limits",
        "Each cell is a replay of everything that was recorded. Columns: so many times the recorded clients."
        " Rows: so many"
        " proxies in place of each. Light is good; find the smallest limits that are still light at the load"
        " you expect.",
    ),
    "wait": (
        "p99 of all waits of answered requests under other limits",
        "The same grid; all waits count: for memory, for the broker, behind earlier requests of the same"
        " client. A cell may be light because almost everything was refused: read it together with the"
        " one above.",
    ),
}


def calibration(frame: pd.DataFrame, alt_text: str) -> Chart:
    """Draw recorded against simulated; columns: measure, value, side (recorded, simulated), group (waits, outcomes)."""
    return chart(
        "calibration-chart",
        "Recorded and simulated",
        alt.hconcat(
            _dumbbell(frame[frame["group"] == "waits"], "seconds", ",.3~f"),
            _dumbbell(frame[frame["group"] == "outcomes"], "share of requests", ".0%"),
        ),
        alt_text,
        "The replay under the very limits that were in force. Where the two dots of a line lie together the"
        " model can be"
        " believed; a long line is what the advice may be wrong by.",
    )


def _dumbbell(frame: pd.DataFrame, title: str, number: str) -> Any:
    base = alt.Chart(frame).encode(y=alt.Y("measure:N", title=None, sort=None))
    spans = frame.groupby("measure", sort=False)["value"].agg(["min", "max"]).reset_index()
    line = (
        alt.Chart(spans)
        .mark_rule(color=colours.GREY, strokeWidth=3)
        .encode(y=alt.Y("measure:N", sort=None, title=None), x="min:Q", x2="max:Q")
    )
    dots = base.mark_point(filled=True, size=110, opacity=1).encode(
        x=alt.X("value:Q", title=title, axis=alt.Axis(format=number), scale=alt.Scale(domainMin=0)),
        color=alt.Color("side:N", title=None, scale=alt.Scale(range=[colours.BLUE, colours.ORANGE])),
        shape=alt.Shape("side:N", title=None),
        tooltip=["measure:N", "side:N", alt.Tooltip("value:Q", format=",.4~f")],
    )
    return alt.layer(line, dots).properties(width=WIDTH // 2 - 110, height=34 * max(frame["measure"].nunique(), 1))


def trade_off(frame: pd.DataFrame, alt_text: str) -> Chart:
    """Draw what memory buys; columns: memory_mib, refused_share, wait_seconds, fleet, state, limits."""
    states = ["misses the target", "holds the target", "advice"]
    base = alt.Chart(frame[frame["memory_mib"] > 0]).encode(
        x=alt.X("memory_mib:Q", title="memory of all proxies, MiB (logarithmic)", scale=alt.Scale(type="log")),
        color=alt.Color("state:N", title=None, scale=alt.Scale(domain=states, range=_STATES)),
        shape=alt.Shape("state:N", title=None, scale=alt.Scale(domain=states, range=["cross", "circle", "diamond"])),
        size=alt.condition("datum.state == 'advice'", alt.value(220), alt.value(60)),
        tooltip=[
            alt.Tooltip("limits:N"),
            alt.Tooltip("fleet:Q", title="proxies for each"),
            alt.Tooltip("refused_share:Q", title="refused", format=".2%"),
            alt.Tooltip("wait_seconds:Q", title="p99 of all waits, s", format=",.3f"),
        ],
    )
    marks = base.mark_point(filled=True, opacity=0.9)
    half = {"width": WIDTH // 2 - 70, "height": 220}
    refused = marks.encode(y=alt.Y("refused_share:Q", title="refused", axis=alt.Axis(format="%"))).properties(**half)
    wait = marks.encode(y=alt.Y("wait_seconds:Q", title="p99 of all waits, seconds")).properties(**half)
    return chart(
        "trade-off",
        "What memory buys",
        alt.hconcat(refused, wait),
        alt_text,
        "Every set of limits that was tried at the load of the target. Left of the green points memory is too"
        " small; to their"
        " right it costs more and buys nothing.",
    )


_STATES: Final = [colours.GREY, colours.GREEN, colours.RED]


def bars(name: str, title: str, frame: pd.DataFrame, unit: str, alt_text: str, caption: str) -> Chart:
    """Draw the largest of something as bars; columns: who (any text), value."""
    drawing = (
        alt.Chart(frame.head(MOST_BARS))
        .mark_bar(color=colours.BLUE, height=14)
        .encode(
            x=alt.X("value:Q", title=unit),
            y=alt.Y("who:N", title=None, sort=None, axis=alt.Axis(labelLimit=260)),
            tooltip=[alt.Tooltip("who:N"), alt.Tooltip("value:Q", title=unit, format=",.4~g")],
        )
        .properties(width=WIDTH - 240, height=24 * min(len(frame), MOST_BARS))
    )
    return chart(name, title, drawing, alt_text, caption)


_MARKS: Final = {
    "pressure": (
        "Pressure under other marks",
        "0 at the low mark, 1 at the high mark, mean over the proxies. Where there is no point memory was not"
        " recorded, and nobody would have been slowed.",
    ),
    "allowed_share": (
        "Allowed rate under other marks",
        "Part of its natural rate that a topic may send. Lines that fall late and deep belong to marks that are"
        " close together; those that fall early and little to low marks.",
    ),
}


def marks_over_time(frame: pd.DataFrame, clock: Clock, measure: str, alt_text: str) -> Chart:
    """Draw the pressure or the allowed share over time, a line for each pair of marks.

    Columns: at_ms, when, marks, run (points of one are joined), and the measure.
    """
    title, caption = _MARKS[measure]
    drawing = (
        alt.Chart(frame[["at_ms", "when", "marks", "run", measure]])
        .mark_line(interpolate="step-after", strokeWidth=2, point={"size": 18})
        .encode(
            x=time_axis(clock),
            y=alt.Y(f"{measure}:Q", title=title.split(" under")[0].lower(), scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("marks:N", title="high / low"),
            detail="run:N",
            tooltip=["when:N", "marks:N", alt.Tooltip(f"{measure}:Q", format=".0%")],
        )
        .properties(width=WIDTH, height=HEIGHT)
    )
    return chart(f"marks-{measure.replace('_', '-')}", title, drawing, alt_text, caption)
