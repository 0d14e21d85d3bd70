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
from pipeline.report import earlier, future, past, slowed, words
from pipeline.report.facts import Facts
from pipeline.report.gather import gather
from pipeline.report.page import page_of
from pipeline.report.parts import Section


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """Where the tables are and where the page goes; `conf_path` holds the advice as lines of proxy.conf.

    `no_advice` says why there is none, whatever an earlier run has left in the tables. The wait that is promised is
    by default that of the advice. Raises PipelineError for one that cannot be meant.
    """

    common: CommonSettings
    to: Path
    conf_path: Path | None = None
    no_advice: str = ""
    promised_us: float | None = None
    period: Period = ALWAYS

    def __post_init__(self) -> None:
        """Refuse a promise that cannot be meant, and a page that cannot be written."""
        if self.promised_us is not None:
            refuse_promise(self.promised_us)
        if self.to.is_dir():
            raise PipelineError(f"--to: got the directory {self.to}, expected a file")


@dataclass(frozen=True, slots=True)
class ReportSummary:
    """The written page: its path, its size and the number of its charts."""

    path: Path
    bytes: int
    charts: int

    def __str__(self) -> str:
        return f"{self.path}, {self.charts} charts, {self.bytes / 1e6:.1f} MB"


def write_report(spark: SparkSession, settings: ReportSettings) -> ReportSummary:
    """Collect, render and write the page; raises PipelineError if there are no events or the file cannot be written."""
    facts = gather(spark, settings.common, settings.period)
    if settings.promised_us is not None:
        facts = replace(facts, promised_us=settings.promised_us)
    if settings.no_advice:
        facts = replace(facts, advice=pd.DataFrame(), no_advice=settings.no_advice)
    elif settings.conf_path is not None and settings.conf_path.exists():
        facts = replace(facts, fragment=settings.conf_path.read_text("utf-8"))
    sections = sections_of(facts)
    data = page_of(facts, sections, datetime.now(UTC)).encode("utf-8")
    try:
        settings.to.parent.mkdir(parents=True, exist_ok=True)
        # A reader of the old page sees all of it while this one is written.
        partial = settings.to.with_name(f".{settings.to.name}.partial")
        partial.write_bytes(data)
        os.replace(partial, settings.to)
    except OSError as error:
        raise PipelineError(f"--to {settings.to}: cannot be written: {error.strerror}", ExitCode.USAGE) from error
    return ReportSummary(settings.to, len(data), sum(len(section.charts) for section in sections))


def sections_of(facts: Facts) -> list[Section]:
    """Write all sections, in the order of the page."""
    overview = facts.overview
    return [
        words.summary(facts, overview),
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
        future.calibration(facts),
        past.quality(facts, overview),
    ]


def report_path(out: str, to: str | None) -> Path:
    """Return the path of the page: `to`, or report.html among the tables; raises PipelineError if that is no disk."""
    if to is not None:
        return Path(to)
    place = out.removeprefix("file://").removeprefix("file:")
    if "://" in place:
        raise PipelineError(f"--to: got none, expected a file: --out {out} is not on this machine")
    return Path(place) / "report.html"
