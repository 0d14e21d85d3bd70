"""The job `run`: ingest, usage, storms, whatif, advise and report, in one session."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from pipeline.core.errors import PipelineError
from pipeline.core.options import add_common, common_settings
from pipeline.core.periods import add_period, given_period
from pipeline.core.tables.events import EVENTS
from pipeline.ingest import settings as told
from pipeline.ingest.stream import follow
from pipeline.jobs.advise import RECORDED_LOAD, add_target, advise, settings_of
from pipeline.jobs.ingest import say
from pipeline.jobs.report import add_page
from pipeline.jobs.storms import StormSettings, find_storms
from pipeline.jobs.usage import UsageSettings, make_usage
from pipeline.jobs.whatif import WhatifSettings, whatif
from pipeline.replay.grid import Grid, add_grid, grid_of
from pipeline.report.write import ReportSettings, ReportSummary, report_path, write_report
from pipeline.running.chain import Outcome, Step, run_steps
from pipeline.running.session import at_work
from pipeline.store.drift import push, refuse_gateway, write_metrics
from pipeline.store.history import drift_of
from pipeline.store.tables import read_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the jobs that differ from one use to the next; the others have their defaults."""
    add_common(parser)
    add_period(parser)
    told.add_arguments(parser, required=False)
    add_grid(parser)
    add_target(parser)
    parser.add_argument(
        "--target-load", type=int, metavar="N",
        help=f"load of the target (default: {RECORDED_LOAD}, the recorded one, if that is among --load, else the lowest)",
    )  # fmt: skip
    add_page(parser)
    parser.add_argument(
        "--metrics-file", metavar="FILE", help="write drift as metrics, for the textfile collector of a node exporter"
    )
    parser.add_argument("--pushgateway", metavar="URL", help="put the same metrics to a Pushgateway")


def run(options: argparse.Namespace) -> int:
    """Run all jobs; the exit code is that of the first that fails."""
    steps = _Steps(options)
    with at_work("run", steps.common) as spark:
        if steps.without_source:
            # One line, not one for each job.
            read_table(spark, steps.common, EVENTS)
        outcome = run_steps(steps.over(spark), partial(print, flush=True))
    if "report" not in outcome.failed:
        print(f"report: {steps.page}")
    if outcome.failed:
        print(f"pulsar-proxy-pipeline run: {', '.join(outcome.failed)} failed", file=sys.stderr)
    return outcome.code


class _Steps:
    """All settings, read before anything is run, so that a wrong option costs no time."""

    def __init__(self, options: argparse.Namespace) -> None:
        if options.trigger is not None:
            raise PipelineError("--trigger: got one, expected none: run takes all there is")
        if options.source is None:
            told.refuse_without_source(options)
        self.common = common_settings(options)
        self.page = report_path(self.common.out, options.to)
        self._ingest = None if options.source is None else told.ingest_settings(options)
        self._period = period = given_period(options)
        self._whatif = WhatifSettings(self.common, grid_of(options), options.p99_wait_ms * 1000, period)
        self._advise = settings_of(options, _target_load(options.target_load, self._whatif.grid))
        self._metrics = None if options.metrics_file is None else Path(options.metrics_file)
        self._gateway = options.pushgateway
        if self._gateway is not None:
            refuse_gateway(self._gateway)
        if self._advise.conf_path is None:
            raise PipelineError(
                f"--conf-file: got none, expected a file: --out {self.common.out} is not on this machine"
            )

    @property
    def without_source(self) -> bool:
        """Return whether the events are those of the table."""
        return self._ingest is None

    def over(self, spark: SparkSession) -> list[Step]:
        source, period = self._ingest, self._period

        def step(name: str, work: Callable[[Outcome], object], *needs: str) -> Step:
            return Step(name, work, needs)

        first = [] if source is None else [step("ingest", lambda _: follow(spark, source, say, Event()))]
        # The fragment of `advise` is in its file and in the report: nothing is said of it here.
        return [
            *first,
            step("usage", lambda _: make_usage(spark, UsageSettings(self.common, period=period)), "ingest"),
            step("storms", lambda _: find_storms(spark, StormSettings(self.common, period=period)), "ingest"),
            step("whatif", lambda _: whatif(spark, self._whatif), "ingest"),
            step("advise", lambda _: advise(spark, self._advise, lambda _: None), "whatif"),
            step("report", partial(self._report, spark), "ingest"),
            *([step("metrics", lambda _: self._drift(spark), "whatif")] if self._metrics or self._gateway else []),
        ]

    def _drift(self, spark: SparkSession) -> str:
        cluster = self._period.cluster
        text = drift_of(spark, self.common, cluster)
        if self._metrics is not None:
            write_metrics(self._metrics, text)
        if self._gateway is not None:
            push(self._gateway, text, cluster)
        return f"{text.count('# TYPE')} metrics"

    def _report(self, spark: SparkSession, so_far: Outcome) -> ReportSummary:
        failed = so_far.failed.get("advise")
        why = "" if failed is None else str(failed)
        promised_us = self._advise.target.p99_wait_us
        settings = ReportSettings(
            self.common, self.page, self._advise.conf_path, why, promised_us=promised_us, period=self._period
        )
        return write_report(spark, settings)


def _target_load(given: int | None, grid: Grid) -> int:
    """Choose the load of the target among those that are replayed; raises PipelineError if it is none of them."""
    load = given if given is not None else RECORDED_LOAD if RECORDED_LOAD in grid.loads else min(grid.loads)
    if load not in grid.loads:
        raise PipelineError(f"--target-load: got {load}, expected one of --load {','.join(map(str, grid.loads))}")
    return load
