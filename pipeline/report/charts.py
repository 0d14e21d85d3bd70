"""Charts as pictures: memory against its limit, waits, refusals, arrivals with storms, and what memory buys.

Small data frames in, SVG out, drawn once by Vega and shown as it is. Rule: names of columns are ours; time is UTC.
Each colour has a contrast of at least 3 to a white and to a dark page (tests), and what is neither data nor legend has
the colour of the page's text: a picture does not change with the scheme, nor on paper.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import altair as alt
import pandas as pd
import vl_convert
from markupsafe import Markup

from pipeline.report.clock import Clock
from pipeline.report.parts import Chart
from pipeline.report.units import duration

LIGHT: Final = "#ffffff"
DARK: Final = "#14171c"
BLUE: Final = "#3b7dd8"
ORANGE: Final = "#d9701a"
GREEN: Final = "#2f9456"
RED: Final = "#d94a4f"
PURPLE: Final = "#9a62cf"
TEAL: Final = "#168c98"
PINK: Final = "#cf4f93"
GREY: Final = "#7f8792"
SERIES: Final = (RED, ORANGE, PURPLE, TEAL, BLUE, GREEN, PINK, GREY)
WIDTH: Final = 780
HEIGHT: Final = 200
# The one that Altair writes for.
VEGALITE_VERSION: Final = "6.4"
_INK: Final = "currentColor"
_WORDS: Final = {"labelColor": _INK, "titleColor": _INK, "titleFontWeight": "normal"}
_CONFIG: Final[dict[str, Any]] = {
    # The whole picture has a text; one for each mark would be most of the page.
    "aria": False,
    "background": "transparent",
    "font": "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif",
    "view": {"stroke": None},
    "axis": _WORDS | {"gridColor": "#80808038", "domainColor": "#80808080", "tickColor": "#80808080"},
    "legend": _WORDS | {"orient": "top", "labelLimit": 320},
}
_HOUR_US: Final = 3_600_000_000
_PATTERNS: Final = ((_HOUR_US // 6, "%H:%M:%S"), (36 * _HOUR_US, "%H:%M"), (10 * 24 * _HOUR_US, "%b %d %H:%M"))
_IDS: Final = re.compile(r'(\bid="|url\(#|href="#)([\w-]+)')
_PLACES: Final = re.compile(r' (?:d|transform)="[^"]*"')
_DECIMALS: Final = re.compile(r"(\.\d)\d+")
_TWICE: Final = re.compile(r"(L[^LMZ\"]+)\1+(?=[LMZ\"])")


def memory(frame: pd.DataFrame, clock: Clock, kind: str, alt_text: str) -> Chart:
    """Draw what was held and what was waited for against the limit; MiB, a limit of 0 is none.

    Columns: at_ms, held_mib, waiting_mib, limit_mib.
    """
    ways = {"held_mib": "in use", "waiting_mib": "waited for", "limit_mib": "limit"}
    long = frame.melt("at_ms", list(ways), "what", "value").replace({"what": ways})
    limits = long[(long["what"] == "limit") & (long["value"] > 0)]
    tints = dict(zip(ways.values(), (BLUE, ORANGE, RED), strict=True))
    drawing = _areas(long[long["what"] != "limit"], clock, "MiB", tints)
    if len(limits):
        line = alt.Chart(_ended(limits, clock)).mark_line(interpolate="step-after", strokeDash=[6, 3])
        drawing = alt.layer(drawing, line.encode(x=_time(clock), y="value:Q", color="what:N"))
    return _chart(
        f"memory-{kind}",
        f"{kind.capitalize()} memory against its limit",
        f"Summed over all proxies, mean of each interval of {duration(clock.step_us)}: a shorter peak does not show."
        " Orange above blue is what requests stood in line for; the higher the orange, the longer everybody waited.",
        alt_text,
        drawing,
    )


def waits(frame: pd.DataFrame, clock: Clock, alt_text: str) -> Chart:
    """Draw quantiles of waiting; columns: bin, at_ms, what, value (seconds); bins without requests have no row."""
    tints = {"p50": GREEN, "p95": ORANGE, "p99": RED}
    lines = alt.Chart(_steps(frame, clock), width=WIDTH, height=HEIGHT).mark_line(strokeWidth=2)
    y = alt.Y("value:Q", title="seconds", scale=alt.Scale(domainMin=0))
    drawing = lines.encode(x=_time(clock), y=y, color=_colour(tints), order="place:Q")
    return _chart(
        "waits-over-time",
        "Waits for memory",
        "All requests, the refused among them, by time of arrival: heap, growth and direct memory together. Half"
        " waited less than p50, one in a hundred longer than p99. From buckets: within 9 %.",
        alt_text,
        drawing,
    )


def refusals(frame: pd.DataFrame, clock: Clock, alt_text: str) -> Chart:
    """Draw requests that were not answered, by reason; columns: at_ms, what, value, a row for each bin and reason."""
    tints = dict(zip(sorted(frame["what"].unique()), SERIES, strict=False))
    return _chart(
        "refusals-over-time",
        "Requests that were not answered",
        "By time of arrival. Timeouts in heap or direct: the limit was too small, or memory was held too long; queue"
        " full: more stood in line than allowed; cancelled: the client left first.",
        alt_text,
        _areas(frame, clock, "requests", tints),
    )


def arrivals(rates: pd.DataFrame, storms: pd.DataFrame, clock: Clock, alt_text: str) -> Chart:
    """Draw requests a second, with storms as bands; columns: at_ms, value; begin_ms, end_ms."""
    drawing = _areas(rates.assign(what="requests"), clock, "requests a second", {"requests": BLUE}, None)
    if len(storms):
        bands = alt.Chart(storms).mark_rect(opacity=0.22, color=ORANGE, stroke=ORANGE, strokeWidth=1)
        drawing = alt.layer(bands.encode(x=_time(clock, "begin_ms"), x2="end_ms:T"), drawing)
    return _chart(
        "arrivals",
        "Arrivals and storms",
        f"A rate in each interval of {duration(clock.step_us)}; the peak of the table is of a whole second. A band is"
        " one storm: from its first arrival until everybody in it was served or refused.",
        alt_text,
        drawing,
    )


def trade_off(frame: pd.DataFrame, alt_text: str) -> Chart:
    """Draw what memory buys; columns: memory_mib, refused_share, wait_seconds, state."""
    tints = {"misses the target": GREY, "holds the target": GREEN, "advice": RED}
    shapes = alt.Scale(domain=list(tints), range=["triangle-down", "circle", "diamond"])
    base = alt.Chart(frame[frame["memory_mib"] > 0]).encode(
        x=alt.X("memory_mib:Q", title="memory of all proxies, MiB (logarithmic)", scale=alt.Scale(type="log")),
        color=alt.Color("state:N", title=None, scale=_scale(tints)),
        shape=alt.Shape("state:N", title=None, scale=shapes),
        size=alt.condition("datum.state == 'advice'", alt.value(220), alt.value(60)),
    )
    marks = base.mark_point(filled=True, opacity=0.9).properties(width=WIDTH // 2 - 70, height=HEIGHT)
    refused = marks.encode(y=alt.Y("refused_share:Q", title="refused", axis=alt.Axis(format="%")))
    wait = marks.encode(y=alt.Y("wait_seconds:Q", title="replayed p99 of the answered, seconds"))
    return _chart(
        "trade-off",
        "What memory buys",
        "Each point is a set of limits, tried at the load of the target. Left of the green points memory is too small;"
        " to their right it costs more and buys nothing.",
        alt_text,
        alt.hconcat(refused, wait),
    )


def _chart(name: str, title: str, caption: str, alt_text: str, drawing: Any) -> Chart:
    spec = drawing.configure().to_dict() | {"config": _CONFIG}
    drawn: str = vl_convert.vegalite_to_svg(json.dumps(spec), vl_version=VEGALITE_VERSION)
    # All pictures of a page share one space of ids.
    drawn = _IDS.sub(rf"\g<1>{name}-\g<2>", drawn)
    # A tenth of a pixel is enough, and a point once.
    drawn = _PLACES.sub(lambda place: _TWICE.sub(r"\1", _DECIMALS.sub(r"\1", place[0])), drawn)
    return Chart(name, title, alt_text, caption, Markup(drawn))


def _areas(frame: pd.DataFrame, clock: Clock, unit: str, tints: Mapping[str, str], legend: Any = alt.Undefined) -> Any:
    """Stack what has a value in each bin; columns: at_ms, what, value."""
    ranks = {what: rank for rank, what in enumerate(tints)}
    rows = _ended(frame.assign(rank=frame["what"].map(ranks)), clock)
    areas = alt.Chart(rows).mark_area(interpolate="step-after", opacity=0.75, line=False)
    return areas.encode(
        x=_time(clock),
        y=alt.Y("value:Q", stack="zero", title=unit),
        color=_colour(tints, legend),
        order=alt.Order("rank:Q"),
    ).properties(width=WIDTH, height=HEIGHT)


def _ended(frame: pd.DataFrame, clock: Clock) -> pd.DataFrame:
    """Add the end of the last bin, which would have no length else."""
    last = frame.groupby("what", sort=False).tail(1)
    return pd.concat([frame, last.assign(at_ms=last["at_ms"] + clock.step_us / 1000)])


def _steps(frame: pd.DataFrame, clock: Clock) -> pd.DataFrame:
    """Make a line of each bin, from its begin to its end; where nobody asked nobody knows, so no line goes there."""
    frame = frame.sort_values(["what", "bin"], ignore_index=True)
    end = frame.assign(at_ms=frame["at_ms"] + clock.step_us / 1000)
    gap = end[frame.groupby("what")["bin"].diff(-1) != -1].assign(value=float("nan"))
    steps = pd.concat([frame, end, gap]).sort_index(kind="stable")
    return steps.assign(place=range(len(steps)))


def _scale(tints: Mapping[str, str]) -> alt.Scale:
    return alt.Scale(domain=list(tints), range=list(tints.values()))


def _colour(tints: Mapping[str, str], legend: Any = alt.Undefined) -> alt.Color:
    return alt.Color("what:N", title=None, scale=_scale(tints), legend=legend)


def _time(clock: Clock, column: str = "at_ms") -> alt.X:
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
