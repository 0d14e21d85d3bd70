"""The job `report`: one HTML page with everything that the other jobs have found."""

import argparse

from pipeline.core.errors import ExitCode
from pipeline.core.options import add_common, add_promise, common_settings
from pipeline.core.paths import conf_path
from pipeline.core.periods import add_period, given_period
from pipeline.report.write import ReportSettings, report_path, write_report
from pipeline.running.session import at_work


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the job."""
    add_common(parser)
    add_period(parser)
    add_page(parser)
    add_promise(parser, of_advice=True)
    parser.add_argument("--conf-file", metavar="FILE", help="what advise has written (default: advice.conf in --out)")


def add_page(parser: argparse.ArgumentParser) -> None:
    """Declare where the page goes."""
    parser.add_argument("--to", metavar="FILE", help="the page (default: report.html in --out)")


def run(options: argparse.Namespace) -> int:
    """Write the report and print its path."""
    common = common_settings(options)
    settings = ReportSettings(
        common,
        report_path(common.out, options.to),
        conf_path(common.out, options.conf_file),
        promised_us=None if options.p99_wait_ms is None else options.p99_wait_ms * 1000,
        period=given_period(options),
    )
    with at_work("report", common, writes=False) as spark:
        summary = write_report(spark, settings)
    print(f"report: {summary}")
    return ExitCode.OK
