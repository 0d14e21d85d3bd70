"""Replay recorded arrivals under other limits, loads and fleet sizes."""

import argparse

from pipeline.errors import ExitCode
from pipeline.options import add_common, add_promise, common_settings
from pipeline.periods import add_period, given_period
from pipeline.progress import at_work
from pipeline.replay.grid import add_grid, grid_of
from pipeline.slowed.marks import add_marks, given_marks
from pipeline.whatif import WhatifSettings, whatif

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_common(parser)
    add_period(parser)
    add_grid(parser)
    add_promise(parser)
    add_marks(parser)


def run(options: argparse.Namespace) -> int:
    """Run the job; raises PipelineError."""
    marks = given_marks(options.overload_high, options.overload_low)
    settings = WhatifSettings(
        common_settings(options), grid_of(options), options.p99_wait_ms * 1000, marks, given_period(options)
    )
    with at_work("whatif", settings.common) as spark:
        summary = whatif(spark, settings)
    print(f"{summary.scenarios} scenarios in the table whatif of {settings.common.out}")
    return ExitCode.OK
