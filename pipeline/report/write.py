"""The report put together: tables in, one file out."""

import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession

from pipeline.core.calibration import refuse_promise
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.periods import ALWAYS, Period
from pipeline.report import earlier, future, past, slowed
from pipeline.report.facts import Facts
from pipeline.report.filters import filters
from pipeline.report.gather import gather
from pipeline.report.page import render
from pipeline.report.parts import Section
from pipeline.report.words import span, summary

__all__ = ["ReportSettings", "ReportSummary", "page_of", "report_path", "write_report"]

TITLE = "Topic lists: who costs how much, and which limits to set"


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """Where the tables are and where the page goes; `conf_path` holds the advice as lines of proxy.conf.

    `no_advice` says why there is none, whatever an earlier run has left in the tables; `made_at` is UTC. The wait that
    is promised is by default that of the advice. Raises PipelineError for one that cannot be meant.
    """

    common: CommonSettings
    to: Path
    conf_path: Path | None = None
    no_advice: str = ""
    made_at: datetime | None = None
    promised_us: float | None = None
    period: Period = ALWAYS

    def __post_init__(self) -> None:
        """Refuse a promise that cannot be meant."""
        if self.promised_us is not None:
            refuse_promise(self.promised_us)


@dataclass(frozen=True, slots=True)
class ReportSummary:
    """What was written."""

    path: Path
    bytes: int
    charts: int

    def __str__(self) -> str:
        return f"{self.path}, {self.charts} charts, {self.bytes / 1e6:.1f} MB"


def write_report(spark: SparkSession, settings: ReportSettings) -> ReportSummary:
    """Gather, render and write the page; raises PipelineError if there are no events or the file cannot be written."""
    facts = gather(spark, settings.common, settings.period)
    if settings.promised_us is not None:
        facts = replace(facts, promised_us=settings.promised_us)
    if settings.no_advice:
        facts = replace(facts, advice=pd.DataFrame(), no_advice=settings.no_advice)
    else:
        facts = replace(facts, fragment=_fragment(settings.conf_path))
    sections = sections_of(facts)
    text = page_of(facts, sections, settings.made_at or datetime.now(UTC))
    data = text.encode("utf-8")
    try:
        settings.to.parent.mkdir(parents=True, exist_ok=True)
        # Whoever looks at the old page while this is written sees all of it.
        partial = settings.to.with_name(f".{settings.to.name}.partial")
        partial.write_bytes(data)
        os.replace(partial, settings.to)
    except OSError as error:
        raise PipelineError(f"--to {settings.to}: cannot be written: {error.strerror}", ExitCode.USAGE) from error
    return ReportSummary(settings.to, len(data), sum(len(section.charts) for section in sections))


def sections_of(facts: Facts) -> list[Section]:
    """Write all sections, in the order of the page."""
    overview = facts.overview
    assert overview is not None
    return [
        summary(facts, overview),
        future.advice(facts, overview),
        past.demand(facts, overview),
        past.waits(facts, overview),
        past.refusals(facts, overview),
        past.storms(facts, overview),
        past.costs(facts),
        past.sharing(facts),
        slowed.slowed(facts),
        earlier.advice(facts),
        future.whatif(facts),
        slowed.marks(facts, overview),
        future.calibration(facts),
        past.quality(facts, overview),
    ]


def _fragment(path: Path | None) -> str | None:
    try:
        return None if path is None else path.read_text("utf-8")
    except FileNotFoundError:
        return None


def page_of(facts: Facts, sections: list[Section], made_at: datetime) -> str:
    """Render the sections."""
    assert facts.overview is not None
    made = f"Made by pulsar-proxy-pipeline report on {made_at:%Y-%m-%d %H:%M} UTC from the tables in {facts.out}."
    return render(TITLE, span(facts.overview), sections, made, filters(facts))


def report_path(out: str, to: str | None) -> Path:
    """Say where the page goes: `to`, else report.html among the tables; raises PipelineError where that is no disk."""
    if to is not None:
        return Path(to)
    if "://" in out.removeprefix("file://"):
        raise PipelineError(f"--to: got none, expected a file: --out {out} is not on this machine")
    return Path(out.removeprefix("file://").removeprefix("file:")) / "report.html"
