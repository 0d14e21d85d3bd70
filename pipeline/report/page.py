"""The sections as one HTML page that loads nothing.

Rule: autoescaping is on, data for scripts is JSON without a `<`, and a content security policy forbids the page every
request. The runtime of the charts is in it once; without scripts each chart is an SVG.
"""

import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipeline.report.parts import Chart, Filters, Section

__all__ = ["VEGALITE_VERSION", "render", "static_picture"]

# The one that Altair writes for.
VEGALITE_VERSION: Final = "6.4"
_IDS: Final = re.compile(r'(\bid="|url\(#|href="#)([\w-]+)')
_PACKAGE: Final = "pipeline.report"


def render(title: str, subtitle: str, sections: Sequence[Section], made_by: str, filters: Filters | None = None) -> str:
    """Write the page; `made_by` is its last line."""
    environment = Environment(
        loader=PackageLoader(_PACKAGE, "page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    charts = [chart for section in sections for chart in section.charts]
    return environment.get_template("report.html.j2").render(
        title=title,
        subtitle=subtitle,
        sections=sections,
        made_by=made_by,
        style=Markup(_own("style.css")),
        drawing=Markup(_own("charts.js")),
        runtime=Markup(_runtime()) if charts else "",
        specs={chart.name: Markup(script_json(chart.spec)) for chart in charts},
        filters=filters,
        choices=Markup(script_json(filters.data)) if filters else "",
        pictures={chart.name: Markup(static_picture(chart)) for chart in charts},
    )


def static_picture(chart: Chart) -> str:
    """Draw a chart as SVG; its ids are made its own, because all pictures of a page share one space of ids."""
    drawn: str = vl_convert.vegalite_to_svg(json.dumps(chart.spec), vl_version=VEGALITE_VERSION)
    return _IDS.sub(rf"\g<1>{chart.name}-\g<2>", drawn)


def script_json(value: Any) -> str:
    """Write JSON that no HTML parser mistakes for anything else."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _runtime() -> str:
    """Give Vega, Vega-Lite and vega-embed as one script; takes seconds the first time."""
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGALITE_VERSION)
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _own(name: str) -> str:
    return (files(_PACKAGE) / "page" / name).read_text(encoding="utf-8")
