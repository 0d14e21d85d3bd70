"""The sections as one HTML page that loads nothing and has no script.

Rule: autoescaping is on, and a content security policy forbids the page every request and every script. Pictures are
of `charts`, which escapes texts; all else is foreign text that goes through the template.
"""

from collections.abc import Sequence
from datetime import datetime

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipeline.report.facts import Facts
from pipeline.report.parts import Section
from pipeline.report.summary import span


def page_of(facts: Facts, sections: Sequence[Section], out: str, made_at: datetime) -> str:
    """Write the page; `out` is where the tables are."""
    loader = PackageLoader("pipeline.report", "page")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template("report.html.j2").render(
        title="Topic lists: who costs how much, and which limits to set",
        subtitle=span(facts.overview),
        sections=sections,
        made_by=f"Made by pulsar-proxy-pipeline report on {made_at:%Y-%m-%d %H:%M} UTC from the tables in {out}.",
        style=Markup(loader.get_source(environment, "style.css")[0]),
    )
