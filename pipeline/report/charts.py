"""Charts: memory against its limits, waits, refusals, storms; costs; the surface of a grid, calibration, the trade-off.

Small data frames in, Vega-Lite specifications out. Rule: names of columns are ours, what clients chose is only ever a
value; time is UTC on the axis and, as text, in tooltips.
"""

from typing import Any, Final

import altair as alt
import pandas as pd

from pipeline.report import colours
from pipeline.report.clock import Clock
from pipeline.report.parts import Chart
from pipeline.report.units import distinct

# More is no better to look at, and the page must stay small.
MOST_POINTS: Final = 5000
MOST_BARS: Final = 10
WIDTH: Final = 780
HEIGHT: Final = 220
_HOUR_US: Final = 3_600_000_000
_PATTERNS: Final = ((_HOUR_US // 6, "%H:%M:%S"), (36 * _HOUR_US, "%H:%M"), (10 * 24 * _HOUR_US, "%b %d %H:%M"))
_IN_USE, _WAITING, _LIMIT = "in use", "waited for", "limit"
_RAMPS: Final = {
    "refused": ["#fff7ef", "#fdae6b", "#d94801", "#7f2704"],
    "wait": ["#f7f5fb", "#bcbddc", "#807dba", "#54278f"],
}
_DARK_CELL: Final = "#ffffff"
_LIGHT_CELL: Final = "#1d2127"
_CELL: Final = 24
# Charts whose rows page/charts.js makes anew for what is chosen, by the names of charts and columns.
_FILTERED: Final = {
    "memory-heap", "memory-direct", "fullness", "waits-over-time", "refusals-over-time", "storm-timeline",
}  # fmt: skip
# The title of each chart, and how to read it.
_TEXTS: Final = {
    "memory": (
        "{} memory against its limit",
        "Mean of each interval over all proxies. Orange above blue is what requests stood in line for: where both"
        " together stay below the dashed line the limit was enough; the higher the orange, the longer everybody"
        " waited.",
    ),
    "fullness": (
        "The fullest proxy, as requests found it",
        "The highest use that any request met on arrival. At 100 % the next one waits; above it one list that turned"
        " out larger than expected has grown beyond the limit, as one at a time may, or the limit was lowered.",
    ),
    "waits-over-time": (
        "Waits for memory",
        "Heap, growth and direct memory together, by time of arrival; half of the requests waited less than p50, one in"
        " a hundred longer than p99. From buckets: within 9 %.",
    ),
    "refusals-over-time": (
        "Requests that were not answered",
        "By time of arrival. Timeouts in heap or direct: the limit was too small, or held too long; queue full: more"
        " stood in line than allowed; cancelled: the client left first.",
    ),
    "storm-timeline": (
        "Arrivals and storms",
        "A band is one storm: from its first arrival until everybody in it was served or refused.",
    ),
    "cost": (
        "Heap by {}",
        "The {}s that booked most heap memory for longest. One that stands out is whom to ask first; if one has most of"
        " all, shares (topicListFairness) or a cap protect the others.",
    ),
    "whatif-refused": (
        "Share of requests refused under other limits",
        "Each cell is a replay of everything that was recorded. Columns: so many times the recorded clients. Rows: so"
        " many proxies in place of each. Light is good; find the smallest limits that are still light at the load you"
        " expect.",
    ),
    "whatif-wait": (
        "p99 of all waits of answered requests under other limits",
        "The same grid; all waits count: for memory, for the broker, behind earlier requests of the same client. A cell"
        " may be light because almost everything was refused: read it together with the one above.",
    ),
    "calibration-chart": (
        "Recorded and simulated",
        "The replay under the very limits that were in force. Where the two dots of a line lie together the model can"
        " be believed; a long line is what the advice may be wrong by.",
    ),
    "trade-off": (
        "What memory buys",
        "Every set of limits that was tried at the load of the target. Left of the green points memory is too small; to"
        " their right it costs more and buys nothing.",
    ),
}


def _chart(name: str, drawing: Any, alt_text: str, text: str = "", of: str = "") -> Chart:
    """Finish a drawing; raises ValueError if it has more points than a page should hold. `text`: see `_TEXTS`."""
    spec: dict[str, Any] = drawing.configure().to_dict()
    points = sum(map(len, spec.get("datasets", {}).values()))
    if points > MOST_POINTS:
        raise ValueError(f"chart {name}: got {points} points, expected at most {MOST_POINTS}: aggregate more")
    spec["config"] = colours.CONFIG
    spec["description"] = alt_text
    title, caption = (words.format(of) for words in _TEXTS[text or name])
    return Chart(name, title, alt_text, caption, spec, name in _FILTERED)


def memory(frame: pd.DataFrame, clock: Clock, kind: str, alt_text: str) -> Chart:
    """Draw what was held and what was waited for against the limit.

    Columns: at_ms, when, held_mib, waiting_mib, limit_mib (0 where there is none).
    """
    ways = {"held_mib": _IN_USE, "waiting_mib": _WAITING}
    stacked = frame.melt(["at_ms", "when"], list(ways), "way", "mib").replace({"way": ways})
    stacked["rank"] = (stacked["way"] == _WAITING).astype(int)
    scale = alt.Scale(domain=[_IN_USE, _WAITING, _LIMIT], range=[colours.BLUE, colours.ORANGE, colours.RED])
    color = alt.Color("way:N", scale=scale, title=None)
    areas = alt.Chart(stacked).mark_area(interpolate="step-after", opacity=0.75, line=False)
    areas = areas.encode(
        x=_time_axis(clock),
        y=alt.Y("mib:Q", stack="zero", title="MiB"),
        color=color,
        order=alt.Order("rank:Q"),
        tooltip=[_FROM, alt.Tooltip("way:N", title="memory"), alt.Tooltip("mib:Q", title="MiB", format=",.1f")],
    )
    limits = frame.loc[frame["limit_mib"] > 0, ["at_ms", "when", "limit_mib"]].assign(way=_LIMIT)
    lines = alt.Chart(limits).mark_line(interpolate="step-after", strokeDash=[6, 3], strokeWidth=2)
    lines = lines.encode(x=_time_axis(clock), y="limit_mib:Q", color=color)
    drawing = alt.layer(areas, lines) if len(limits) else alt.layer(areas)
    return _chart(f"memory-{kind}", _sized(drawing), alt_text, "memory", kind.capitalize())


def fullness(frame: pd.DataFrame, clock: Clock, alt_text: str) -> Chart:
    """Draw how full the fullest proxy was when requests arrived; columns: at_ms, when, kind, share, run."""
    y = alt.Y("share:Q", title="of the limit", axis=alt.Axis(format="%"), scale=alt.Scale(domainMin=0))
    # Named, so that a choice with fewer has the same colours.
    color = alt.Color("kind:N", title=None, scale=alt.Scale(domain=sorted(frame["kind"].unique())))
    drawing = _lines(frame, clock, y, color, [_FROM, alt.Tooltip("kind:N"), alt.Tooltip("share:Q", format=".1%")])
    return _chart("fullness", _sized(drawing, 160), alt_text)


def waits(frame: pd.DataFrame, clock: Clock, alt_text: str) -> Chart:
    """Draw quantiles of waiting; columns: at_ms, when, quantile, seconds, run."""
    y = alt.Y("seconds:Q", title="seconds", scale=alt.Scale(domainMin=0))
    scale = alt.Scale(range=[colours.GREEN, colours.ORANGE, colours.RED])
    color = alt.Color("quantile:N", title=None, sort=["p50", "p95", "p99"], scale=scale)
    tooltip = [_FROM, alt.Tooltip("quantile:N"), alt.Tooltip("seconds:Q", format=",.3f")]
    drawing = _lines(frame, clock, y, color, tooltip)
    return _chart("waits-over-time", _sized(drawing), alt_text)


def refusals(frame: pd.DataFrame, clock: Clock, alt_text: str) -> Chart:
    """Draw requests that were not answered, by reason; columns: at_ms, end_ms, when, reason, requests."""
    # Stacked here: Vega-Lite does not stack bars whose two ends are given.
    frame = frame.sort_values(["at_ms", "reason"])
    top = frame.groupby("at_ms")["requests"].cumsum()
    scale = alt.Scale(domain=sorted(frame["reason"].unique()), range=_REASONS)
    bars = alt.Chart(frame.assign(bottom=top - frame["requests"], top=top)).mark_rect()
    drawing = bars.encode(
        x=_time_axis(clock),
        x2="end_ms:T",
        y=alt.Y("bottom:Q", title="requests"),
        y2="top:Q",
        color=alt.Color("reason:N", title=None, scale=scale),
        tooltip=[_FROM, alt.Tooltip("reason:N"), alt.Tooltip("requests:Q", format=",")],
    )
    return _chart("refusals-over-time", _sized(drawing), alt_text)


def arrivals(rates: pd.DataFrame, storms: pd.DataFrame, clock: Clock, alt_text: str) -> Chart:
    """Draw requests a second, with storms as bands; columns: at_ms, when, rate; begin_ms, end_ms, name."""
    tooltip = [_FROM, alt.Tooltip("rate:Q", title="requests/s", format=",.1f")]
    line = alt.Chart(rates).mark_area(interpolate="step-after", opacity=0.85, color=colours.BLUE)
    line = line.encode(x=_time_axis(clock), y=alt.Y("rate:Q", title="requests a second"), tooltip=tooltip)
    bands = alt.Chart(storms).mark_rect(opacity=0.22, color=colours.ORANGE, stroke=colours.ORANGE, strokeWidth=1)
    tooltip = [alt.Tooltip("name:N", title="storm")]
    bands = bands.encode(x=_time_axis(clock, "begin_ms"), x2="end_ms:T", tooltip=tooltip)
    drawing = alt.layer(bands, line) if len(storms) else alt.layer(line)
    return _chart("storm-timeline", _sized(drawing), alt_text)


def costs(frame: pd.DataFrame, dimension: str, alt_text: str) -> Chart:
    """Draw who booked most heap memory; columns: who (any text), value (MiB seconds)."""
    unit = "MiB seconds"
    # Names that look alike would be one bar.
    shown = frame.assign(who=distinct(frame["who"])).head(MOST_BARS)
    bars = alt.Chart(shown, width=WIDTH - 240, height=24 * len(shown)).mark_bar(color=colours.BLUE, height=14)
    drawing = bars.encode(
        x=alt.X("value:Q", title=unit),
        y=alt.Y("who:N", title=None, sort=None, axis=alt.Axis(labelLimit=260)),
        tooltip=[alt.Tooltip("who:N"), alt.Tooltip("value:Q", title=unit, format=",.4~g")],
    )
    return _chart(f"cost-{dimension.replace(' ', '-')}", drawing, alt_text, "cost", dimension)


def surface(frame: pd.DataFrame, measure: str, alt_text: str) -> Chart:
    """Draw one measure (refused or wait) of a grid: a field for each load and fleet.

    Columns: heap_mib, direct_mib, load, fleet, value, label; value is a share of one, or seconds.
    """
    most = 1.0 if measure == "refused" else max(float(frame["value"].max()), 0.001)
    scale = alt.Scale(range=_RAMPS[measure], domain=[0, most / 3, 2 * most / 3, most])
    base = alt.Chart(frame).encode(
        x=alt.X("heap_mib:O", title="heap MiB", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("direct_mib:O", title="direct MiB", sort="descending"),
    )
    cells = base.mark_rect(stroke="#80808060").encode(
        color=alt.Color("value:Q", scale=scale, legend=None),
        tooltip=["heap_mib:Q", "direct_mib:Q", "load:Q", "fleet:Q", alt.Tooltip("label:N", title=measure)],
    )
    text = base.mark_text(fontSize=10).encode(
        text="label:N",
        color=alt.condition(f"datum.value > {0.6 * most}", alt.value(_DARK_CELL), alt.value(_LIGHT_CELL)),
    )
    loads, heaps = frame["load"].nunique(), frame["heap_mib"].nunique()
    width = max((WIDTH - 110) // max(loads, 1) - 12, heaps * 34)
    field = alt.layer(cells, text).properties(width=width, height=_CELL * frame["direct_mib"].nunique())
    drawing = field.facet(
        column=alt.Column("load:O", title=None, header=alt.Header(labelExpr="'load ' + datum.value + ' x'")),
        row=alt.Row("fleet:O", title=None, header=alt.Header(labelExpr="datum.value + ' x the proxies'")),
        spacing=12,
    )
    return _chart(f"whatif-{measure}", drawing, alt_text)


def calibration(frame: pd.DataFrame, alt_text: str) -> Chart:
    """Draw recorded against simulated; columns: measure, value, side (recorded, simulated), group (waits, outcomes)."""
    waits = _dumbbell(frame[frame["group"] == "waits"], "seconds", ",.3~f")
    outcomes = _dumbbell(frame[frame["group"] == "outcomes"], "share of requests", ".0%")
    return _chart("calibration-chart", alt.hconcat(waits, outcomes), alt_text)


def _dumbbell(frame: pd.DataFrame, title: str, number: str) -> Any:
    y = alt.Y("measure:N", title=None, sort=None)
    spans = frame.groupby("measure", sort=False)["value"].agg(["min", "max"]).reset_index()
    line = alt.Chart(spans).mark_rule(color=colours.GREY, strokeWidth=3).encode(y=y, x="min:Q", x2="max:Q")
    dots = alt.Chart(frame).mark_point(filled=True, size=110, opacity=1)
    dots = dots.encode(
        y=y,
        x=alt.X("value:Q", title=title, axis=alt.Axis(format=number), scale=alt.Scale(domainMin=0)),
        color=alt.Color("side:N", title=None, scale=alt.Scale(range=[colours.BLUE, colours.ORANGE])),
        shape=alt.Shape("side:N", title=None),
        tooltip=["measure:N", "side:N", alt.Tooltip("value:Q", format=",.4~f")],
    )
    return alt.layer(line, dots).properties(width=WIDTH // 2 - 110, height=34 * max(frame["measure"].nunique(), 1))


def trade_off(frame: pd.DataFrame, alt_text: str) -> Chart:
    """Draw what memory buys; columns: memory_mib, refused_share, wait_seconds, fleet, state, limits."""
    states = ["misses the target", "holds the target", "advice"]
    tints = alt.Scale(domain=states, range=[colours.GREY, colours.GREEN, colours.RED])
    base = alt.Chart(frame[frame["memory_mib"] > 0]).encode(
        x=alt.X("memory_mib:Q", title="memory of all proxies, MiB (logarithmic)", scale=alt.Scale(type="log")),
        color=alt.Color("state:N", title=None, scale=tints),
        shape=alt.Shape("state:N", title=None, scale=alt.Scale(domain=states, range=["cross", "circle", "diamond"])),
        size=alt.condition("datum.state == 'advice'", alt.value(220), alt.value(60)),
        tooltip=[
            alt.Tooltip("limits:N"),
            alt.Tooltip("fleet:Q", title="proxies for each"),
            alt.Tooltip("refused_share:Q", title="refused", format=".2%"),
            alt.Tooltip("wait_seconds:Q", title="p99 of all waits, s", format=",.3f"),
        ],
    )
    marks = base.mark_point(filled=True, opacity=0.9).properties(width=WIDTH // 2 - 70, height=220)
    refused = marks.encode(y=alt.Y("refused_share:Q", title="refused", axis=alt.Axis(format="%")))
    wait = marks.encode(y=alt.Y("wait_seconds:Q", title="p99 of all waits, seconds"))
    return _chart("trade-off", alt.hconcat(refused, wait), alt_text)


_REASONS: Final = [
    colours.RED, colours.ORANGE, colours.PURPLE, colours.TEAL, colours.BLUE, colours.GREEN, colours.PINK, colours.GREY,
]  # fmt: skip
_FROM: Final = alt.Tooltip("when:N", title="from")


def _lines(frame: pd.DataFrame, clock: Clock, y: alt.Y, color: alt.Color, tooltip: list[Any], **mark: Any) -> Any:
    """Draw lines over time. Points of one `run` are joined; between two runs nobody asked, so nobody knows."""
    lines = alt.Chart(frame).mark_line(**mark, strokeWidth=2, point={"size": 18})
    return lines.encode(x=_time_axis(clock), y=y, color=color, detail="run:N", tooltip=tooltip)


def _sized(drawing: Any, height: int = HEIGHT) -> Any:
    return drawing.properties(width=WIDTH, height=height)


def _time_axis(clock: Clock, column: str = "at_ms") -> alt.X:
    """Return the axis of time: the same one in all charts of a page, so that they can be compared."""
    span_us = clock.bins * clock.step_us
    begin_ms = clock.origin_us // 1000
    pattern = next((text for longest, text in _PATTERNS if span_us <= longest), "%Y-%m-%d")
    return alt.X(
        f"{column}:T",
        title="time (UTC)",
        scale=alt.Scale(type="utc", domainMin=begin_ms, domainMax=begin_ms + span_us // 1000, clamp=True),
        axis=alt.Axis(grid=False, format=pattern, tickCount=8),
    )
