"""Charts over time: memory against its limits, waits, refusals, arrivals and storms.

Small data frames in, Vega-Lite specifications out. Rule: names of columns are ours, what clients chose is only ever a
value; time is UTC on the axis and, as text, in tooltips.
"""

from collections.abc import Sequence
from typing import Any, Final

import altair as alt
import pandas as pd

from pipeline.report import colours
from pipeline.report.clock import Clock
from pipeline.report.parts import MOST_POINTS, Chart

__all__ = ["HEIGHT", "WIDTH", "arrivals", "chart", "fullness", "memory", "refusals", "time_axis", "waits"]

WIDTH: Final = 780
HEIGHT: Final = 220
_HOUR_US: Final = 3_600_000_000
_PATTERNS: Final = ((_HOUR_US // 6, "%H:%M:%S"), (36 * _HOUR_US, "%H:%M"), (10 * 24 * _HOUR_US, "%b %d %H:%M"))
_IN_USE, _WAITING, _LIMIT = "in use", "waited for", "limit"


def chart(name: str, title: str, drawing: Any, alt_text: str, caption: str, *, filtered: bool = False) -> Chart:
    """Finish a drawing of Altair; raises ValueError if it has more points than a page should hold.

    Of one that is `filtered` page/charts.js knows how to make the rows anew, by name and columns.
    """
    spec: dict[str, Any] = drawing.configure().to_dict()
    points = sum(map(len, spec.get("datasets", {}).values()))
    if points > MOST_POINTS:
        raise ValueError(f"chart {name}: got {points} points, expected at most {MOST_POINTS}: aggregate more")
    spec["config"] = colours.CONFIG
    spec["description"] = alt_text
    return Chart(name, title, alt_text, caption, spec, filtered)


def memory(frame: pd.DataFrame, clock: Clock, kind: str, alt_text: str) -> Chart:
    """Draw what was held and what was waited for against the limit.

    Columns: at_ms, when, held_mib, waiting_mib, limit_mib (0 where there is none).
    """
    ways = {"held_mib": _IN_USE, "waiting_mib": _WAITING}
    stacked = frame.melt(["at_ms", "when"], list(ways), "way", "mib").replace({"way": ways})
    stacked["rank"] = (stacked["way"] == _WAITING).astype(int)
    scale = alt.Scale(domain=[_IN_USE, _WAITING, _LIMIT], range=[colours.BLUE, colours.ORANGE, colours.RED])
    areas = (
        alt.Chart(stacked)
        .mark_area(interpolate="step-after", opacity=0.75, line=False)
        .encode(
            x=time_axis(clock),
            y=alt.Y("mib:Q", stack="zero", title="MiB"),
            color=alt.Color("way:N", scale=scale, title=None),
            order=alt.Order("rank:Q"),
            tooltip=[_when(), alt.Tooltip("way:N", title="memory"), alt.Tooltip("mib:Q", title="MiB", format=",.1f")],
        )
    )
    limits = frame.loc[frame["limit_mib"] > 0, ["at_ms", "when", "limit_mib"]].assign(way=_LIMIT)
    layers = [areas]
    if len(limits):
        lines = (
            alt.Chart(limits)
            .mark_line(interpolate="step-after", strokeDash=[6, 3], strokeWidth=2)
            .encode(x=time_axis(clock), y="limit_mib:Q", color=alt.Color("way:N", scale=scale, title=None))
        )
        layers.append(lines)
    return chart(
        f"memory-{kind}",
        f"{kind.capitalize()} memory against its limit",
        alt.layer(*layers).properties(width=WIDTH, height=HEIGHT),
        alt_text,
        "Mean of each interval over all proxies. Orange above blue is what requests stood in line for: where"
        " both together"
        " stay below the dashed line the limit was enough; the higher the orange, the longer everybody waited.",
        filtered=True,
    )


def fullness(frame: pd.DataFrame, clock: Clock, alt_text: str) -> Chart:
    """Draw how full the fullest proxy was when requests arrived; columns: at_ms, when, kind, share, run.

    Points of one run are joined; between two runs nobody asked, so nobody knows.
    """
    drawing = (
        alt.Chart(frame)
        .mark_line(strokeWidth=2, point={"size": 18})
        .encode(
            x=time_axis(clock),
            y=alt.Y("share:Q", title="of the limit", axis=alt.Axis(format="%"), scale=alt.Scale(domainMin=0)),
            # Named, so that a choice with fewer has the same colours.
            color=alt.Color("kind:N", title=None, scale=alt.Scale(domain=sorted(frame["kind"].unique()))),
            detail="run:N",
            tooltip=[_when(), alt.Tooltip("kind:N"), alt.Tooltip("share:Q", format=".1%")],
        )
        .properties(width=WIDTH, height=160)
    )
    return chart(
        "fullness",
        "The fullest proxy, as requests found it",
        drawing,
        alt_text,
        "The highest use that any request met on arrival. At 100 % the next one waits; above it one list that turned"
        " out larger than expected has grown beyond the limit, as one at a time may, or the limit was lowered.",
        filtered=True,
    )


def waits(frame: pd.DataFrame, clock: Clock, alt_text: str) -> Chart:
    """Draw quantiles of waiting; columns: at_ms, when, quantile, seconds, run (see `fullness`)."""
    drawing = (
        alt.Chart(frame)
        .mark_line(strokeWidth=2, point={"size": 18})
        .encode(
            x=time_axis(clock),
            y=alt.Y("seconds:Q", title="seconds", scale=alt.Scale(domainMin=0)),
            color=alt.Color("quantile:N", title=None, sort=["p50", "p95", "p99"], scale=alt.Scale(range=_three())),
            detail="run:N",
            tooltip=[_when(), alt.Tooltip("quantile:N"), alt.Tooltip("seconds:Q", format=",.3f")],
        )
        .properties(width=WIDTH, height=HEIGHT)
    )
    return chart(
        "waits-over-time",
        "Waits for memory",
        drawing,
        alt_text,
        "Heap, growth and direct memory together, by time of arrival; half of the requests waited less than"
        " p50, one in a"
        " hundred longer than p99. From buckets: within 9 %.",
        filtered=True,
    )


def refusals(frame: pd.DataFrame, clock: Clock, alt_text: str) -> Chart:
    """Draw requests that were not answered, by reason; columns: at_ms, end_ms, when, reason, requests."""
    # Stacked here: Vega-Lite does not stack bars whose two ends are given.
    frame = frame.sort_values(["at_ms", "reason"])
    top = frame.groupby("at_ms")["requests"].cumsum()
    reasons = sorted(frame["reason"].unique())
    drawing = (
        alt.Chart(frame.assign(bottom=top - frame["requests"], top=top))
        .mark_rect()
        .encode(
            x=time_axis(clock),
            x2="end_ms:T",
            y=alt.Y("bottom:Q", title="requests"),
            y2="top:Q",
            color=alt.Color("reason:N", title=None, scale=alt.Scale(domain=reasons, range=_REASONS)),
            tooltip=[_when(), alt.Tooltip("reason:N"), alt.Tooltip("requests:Q", format=",")],
        )
        .properties(width=WIDTH, height=HEIGHT)
    )
    return chart(
        "refusals-over-time",
        "Requests that were not answered",
        drawing,
        alt_text,
        "By time of arrival. Timeouts in heap or direct: the limit was too small, or held too long; queue full:"
        " more stood"
        " in line than allowed; cancelled: the client left first.",
        filtered=True,
    )


def arrivals(rates: pd.DataFrame, storms: pd.DataFrame, clock: Clock, alt_text: str) -> Chart:
    """Draw requests a second, with storms as bands; columns: at_ms, when, rate; begin_ms, end_ms, name."""
    line = (
        alt.Chart(rates)
        .mark_area(interpolate="step-after", opacity=0.85, color=colours.BLUE)
        .encode(
            x=time_axis(clock),
            y=alt.Y("rate:Q", title="requests a second"),
            tooltip=[_when(), alt.Tooltip("rate:Q", title="requests/s", format=",.1f")],
        )
    )
    layers: Sequence[alt.Chart] = [line]
    if len(storms):
        bands = (
            alt.Chart(storms)
            .mark_rect(opacity=0.22, color=colours.ORANGE, stroke=colours.ORANGE, strokeWidth=1)
            .encode(x=time_axis(clock, "begin_ms"), x2="end_ms:T", tooltip=[alt.Tooltip("name:N", title="storm")])
        )
        layers = [bands, line]
    return chart(
        "storm-timeline",
        "Arrivals and storms",
        alt.layer(*layers).properties(width=WIDTH, height=HEIGHT),
        alt_text,
        "A band is one storm: from its first arrival until everybody in it was served or refused.",
        filtered=True,
    )


_REASONS: Final = [
    colours.RED, colours.ORANGE, colours.PURPLE, colours.TEAL, colours.BLUE, colours.GREEN, colours.PINK, colours.GREY,
]  # fmt: skip


def time_axis(clock: Clock, column: str = "at_ms") -> alt.X:
    """Give the axis of time: the same one in all charts of a page, so that they can be compared."""
    span_us = clock.bins * clock.step_us
    begin_ms = clock.origin_us // 1000
    pattern = next((text for longest, text in _PATTERNS if span_us <= longest), "%Y-%m-%d")
    return alt.X(
        f"{column}:T",
        title="time (UTC)",
        scale=alt.Scale(type="utc", domainMin=begin_ms, domainMax=begin_ms + span_us // 1000, clamp=True),
        axis=alt.Axis(grid=False, format=pattern, tickCount=8),
    )


def _when() -> alt.Tooltip:
    return alt.Tooltip("when:N", title="from")


def _three() -> list[str]:
    return [colours.GREEN, colours.ORANGE, colours.RED]
