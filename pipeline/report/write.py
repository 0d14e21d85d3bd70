"""The report put together: tables in, one file out."""

import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.paths import is_fragment
from pipeline.core.periods import ALWAYS, Period
from pipeline.report import happened
from pipeline.report.advice import advice
from pipeline.report.facts import Advised, Facts
from pipeline.report.gather import gather
from pipeline.report.page import page_of
from pipeline.report.parts import Section
from pipeline.report.slowed import slowed
from pipeline.report.summary import summary


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """Where the tables are and where the page goes; `conf_path` holds the advice as lines of proxy.conf.

    `no_advice` says why there is none, whatever an earlier run has left in the tables; `target_us` is then the wait of
    the target. Raises PipelineError for a page that cannot be written, and for a file that `advise` has not written.
    """

    common: CommonSettings
    to: Path
    conf_path: Path | None = None
    no_advice: str = ""
    target_us: float | None = None
    period: Period = ALWAYS

    def __post_init__(self) -> None:
        if self.to.is_dir():
            raise PipelineError(f"--to: got the directory {self.to}, expected a file")
        # Without advice nobody reads it.
        conf = None if self.no_advice else self.conf_path
        if conf is not None and conf.exists() and not is_fragment(conf):
            raise PipelineError(f"--conf-file: got {conf}, which advise has not written, expected what it wrote")


@dataclass(frozen=True, slots=True)
class ReportSummary:
    """The written page: its path and its size."""

    path: Path
    bytes: int

    def __str__(self) -> str:
        return f"{self.path}, {self.bytes / 1e3:.0f} kB"


def write_report(spark: SparkSession, settings: ReportSettings) -> ReportSummary:
    """Collect, render and write the page; raises PipelineError if there are no events or the file cannot be written."""
    facts = facts_of(spark, settings)
    data = page_of(facts, sections_of(facts), settings.common.out, datetime.now(UTC)).encode("utf-8")
    try:
        settings.to.parent.mkdir(parents=True, exist_ok=True)
        # A reader of the old page sees all of it while this one is written.
        partial = settings.to.with_name(f".{settings.to.name}.partial")
        partial.write_bytes(data)
        os.replace(partial, settings.to)
    except OSError as error:
        raise PipelineError(f"--to {settings.to}: cannot be written: {error.strerror}", ExitCode.USAGE) from error
    return ReportSummary(settings.to, len(data))


def facts_of(spark: SparkSession, settings: ReportSettings) -> Facts:
    """Collect what the page shows; raises PipelineError if there are no events, or some of several clusters."""
    facts = gather(spark, settings.common, settings.period)
    advised = facts.advised
    if settings.no_advice:
        target_us = advised.target_us if settings.target_us is None else settings.target_us
        advised = Advised((), advised.calibration, target_us, none_since=settings.no_advice)
    # A file without a chosen row is not of the run that wrote the table.
    elif advised.chosen and settings.conf_path is not None and settings.conf_path.exists():
        advised = replace(advised, fragment=settings.conf_path.read_text("utf-8"))
    return replace(facts, advised=advised)


def sections_of(facts: Facts) -> list[Section]:
    """Write all sections, in the order of the page."""
    themes = (summary, advice, happened.memory, happened.waits, happened.storms, happened.who, slowed, happened.quality)
    return [theme(facts) for theme in themes]


def report_path(out: str, to: str | None) -> Path:
    """Return the path of the page: `to`, or report.html among the tables; raises PipelineError if that is no disk."""
    if to is not None:
        return Path(to)
    place = out.removeprefix("file://").removeprefix("file:")
    if "://" in place:
        raise PipelineError(f"--to: got none, expected a file: --out {out} is not on this machine")
    return Path(place) / "report.html"
