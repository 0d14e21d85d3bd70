"""The job `run`: ingest, usage, storms, whatif, advise and report, in one session."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Event

from pyspark.sql import SparkSession

from pipeline.core.choice import Target
from pipeline.core.errors import PipelineError
from pipeline.core.options import add_common, add_number, add_promise, common_settings
from pipeline.core.periods import add_period, given_period
from pipeline.ingest import settings as told
from pipeline.ingest.stream import follow
from pipeline.jobs.advise import RECORDED_LOAD, AdviseSettings, add_conf_file, advise
from pipeline.jobs.ingest import say
from pipeline.jobs.report import add_page
from pipeline.jobs.storms import StormSettings, find_storms
from pipeline.jobs.usage import UsageSettings, make_usage
from pipeline.jobs.whatif import WhatifSettings, whatif
from pipeline.replay.grid import add_grid, grid_of
from pipeline.report.write import ReportSettings, ReportSummary, report_path, write_report
from pipeline.running.chain import Outcome, Step, run_steps
from pipeline.running.session import at_work
from pipeline.running.small import for_little
from pipeline.store.days import read_days
from pipeline.store.drift import push, refuse_gateway, write_metrics
from pipeline.store.history import drift_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what differs from one place to the next; the rest are options of the jobs themselves."""
    add_common(parser)
    add_period(parser)
    text = "directory of event files that are taken first; without it the events are those of the table `events`"
    told.add_source(parser, text, required=False)
    add_grid(parser, "heap-mb", "direct-mb")
    text = f"of the target, as a multiple of the recorded clients (default: {RECORDED_LOAD})"
    # The grid has loads, too, from its file.
    parser.add_argument("--load", dest="target_load", type=int, default=RECORDED_LOAD, metavar="N", help=text)
    add_number(parser, "--max-refused", 0.0, "SHARE", "of all requests")
    add_promise(parser)
    add_conf_file(parser)
    add_page(parser)
    text = "write drift as metrics, for the textfile collector of a node exporter"
    parser.add_argument("--metrics-file", metavar="FILE", help=text)
    parser.add_argument("--pushgateway", metavar="URL", help="put the same metrics to a Pushgateway")


def run(options: argparse.Namespace) -> int:
    """Run all jobs; the exit code is that of the first that fails."""
    steps = _Steps(options)
    with at_work("run", for_little(steps.common, steps.source)) as spark:
        if options.source is None:
            # One line, not one for each job.
            read_days(spark, steps.common, steps.period)
        outcome = run_steps(steps.over(spark), partial(print, flush=True))
    if "report" not in outcome.failed:
        print(f"report: {steps.page}")
    if outcome.wrong:
        print(f"pulsar-proxy-pipeline run: {', '.join(outcome.wrong)} failed", file=sys.stderr)
    return outcome.code


class _Steps:
    """All settings, read before anything is run, so that a wrong option costs no time."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.common = common = common_settings(options)
        self.page = report_path(common.out, options.to)
        self._ingest = told.file_settings(common, options)
        self.period = given_period(options)
        target = Target(options.target_load, options.max_refused, options.p99_wait_ms * 1000)
        grid = grid_of(options)
        grid = replace(grid, loads=tuple(sorted({*grid.loads, target.load})))
        self._whatif = WhatifSettings(common, grid, target.p99_wait_us, self.period, options.conf_file)
        self._advise = AdviseSettings(common, target, conf_file=options.conf_file)
        self.source = None if self._ingest is None else self._ingest.source
        self._metrics, self._gateway = options.metrics_file, options.pushgateway
        if self._gateway is not None:
            refuse_gateway(self._gateway)
        if self._advise.conf_path is None:
            raise PipelineError(f"--conf-file: got none, expected a file: --out {common.out} is not on this machine")

    def over(self, spark: SparkSession) -> list[Step]:
        source, period = self._ingest, self.period

        def step(name: str, work: Callable[[Outcome], object], *needs: str) -> Step:
            return Step(name, work, needs)

        # The fragment of `advise` is in its file and in the report: nothing is said of it here.
        return [
            *([] if source is None else [step("ingest", lambda _: follow(spark, source, say, Event()))]),
            step("usage", lambda _: make_usage(spark, UsageSettings(self.common, period=period)), "ingest"),
            step("storms", lambda _: find_storms(spark, StormSettings(self.common, period=period)), "ingest"),
            step("whatif", lambda _: whatif(spark, self._whatif), "ingest"),
            step("advise", lambda _: advise(spark, self._advise, lambda _: None), "whatif"),
            step("report", partial(self._report, spark), "ingest"),
            *([step("metrics", lambda _: self._drift(spark), "whatif")] if self._metrics or self._gateway else []),
        ]

    def _drift(self, spark: SparkSession) -> str:
        cluster = self.period.cluster
        metrics = drift_of(spark, self.common, cluster)
        if self._metrics is not None:
            write_metrics(self._metrics, metrics)
        if self._gateway is not None:
            push(self._gateway, metrics, cluster)
        return "delivered"

    def _report(self, spark: SparkSession, so_far: Outcome) -> ReportSummary:
        failed = so_far.failed.get("advise")
        why = "" if failed is None else str(failed)
        target_us = self._advise.target.p99_wait_us
        settings = ReportSettings(
            self.common, self.page, self._advise.conf_path, why, target_us=target_us, period=self.period
        )
        return write_report(spark, settings)
