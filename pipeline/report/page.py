"""The sections as one HTML page that loads nothing; what its two selects offer, and its script draws for each choice.

Rule: autoescaping is on, data for scripts is JSON without a `<`, and a content security policy forbids the page every
request. The runtime of the charts is in it once; without scripts each chart is an SVG.
"""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final

import pandas as pd
import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipeline.report.facts import Facts
from pipeline.report.parts import Chart, Section
from pipeline.report.units import distinct, duration, shown, words_of
from pipeline.report.words import span

# The one that Altair writes for.
VEGALITE_VERSION: Final = "6.4"
_IDS: Final = re.compile(r'(\bid="|url\(#|href="#)([\w-]+)')


def page_of(facts: Facts, sections: Sequence[Section], made_at: datetime) -> str:
    """Write the page."""
    loader = PackageLoader("pipeline.report", "page")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    style, drawing = (Markup(loader.get_source(environment, name)[0]) for name in ("style.css", "charts.js"))
    return environment.get_template("report.html.j2").render(
        title="Topic lists: who costs how much, and which limits to set",
        subtitle=span(facts.overview),
        sections=sections,
        filters=_filters(facts),
        made_by=f"Made by pulsar-proxy-pipeline report on {made_at:%Y-%m-%d %H:%M} UTC from the tables in {facts.out}.",
        style=style,
        drawing=drawing,
        runtime=_runtime() if any(section.charts for section in sections) else "",
        script_json=script_json,
        picture=_picture,
    )


def _picture(chart: Chart) -> Markup:
    """Draw a chart as SVG; its ids are made its own, because all pictures of a page share one space of ids."""
    drawn: str = vl_convert.vegalite_to_svg(json.dumps(chart.spec), vl_version=VEGALITE_VERSION)
    return Markup(_IDS.sub(rf"\g<1>{chart.name}-\g<2>", drawn))


def script_json(value: Any) -> Markup:
    """Write JSON that no HTML parser mistakes for anything else."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


@cache
def _runtime() -> Markup:
    """Return Vega, Vega-Lite and vega-embed as one script; takes seconds the first time."""
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGALITE_VERSION)
    return Markup(bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--"))


def _filters(facts: Facts) -> dict[str, Any] | None:
    """Return what can be chosen, as numbers with labels, and what the script of the page draws for each choice."""
    choices = facts.choices
    if choices is None or not len(choices.cells):
        return None
    data = {
        "begin_ms": choices.clock.origin_us // 1000,
        "step_ms": choices.clock.step_us / 1000,
        "bins": choices.clock.bins,
        "interval": duration(choices.clock.step_us),
        "cells": _by_choice(choices.cells),
    }
    namespaces = _offered(choices.cells["namespace"], choices.namespaces, "all other namespaces")
    proxies = _offered(choices.cells["proxy"], choices.proxies, "all other proxies")
    return {"namespaces": namespaces, "proxies": proxies, "data": data}


def _offered(ranks: "pd.Series[int]", names: tuple[str, ...], others: str) -> tuple[tuple[int, str], ...]:
    known = set(ranks.unique())
    labels = enumerate([*distinct(map(shown, names)), others])
    return tuple((place, label) for place, label in labels if place in known)


def _by_choice(cells: pd.DataFrame) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, rows in cells.groupby(["namespace", "proxy", "chart", "series"], sort=True):
        namespace, proxy, chart, series = map(str, key)
        word = words_of(series) if chart == "endings" else series
        # Four digits are more than a picture shows.
        values = [float(f"{value:.4g}") for value in rows["value"]]
        found.setdefault(f"{namespace} {proxy}", {}).setdefault(chart, {})[word] = (rows["bin"].tolist(), values)
    return found
