"""The job `report`: one HTML page with everything that the other jobs have found, or its rankings as JSON."""

import argparse

from pipeline.core.errors import ExitCode
from pipeline.core.options import add_common, common_settings
from pipeline.core.paths import conf_path
from pipeline.core.periods import add_period, given_period
from pipeline.report.rankings import as_json
from pipeline.report.write import ReportSettings, facts_of, report_path, write_report
from pipeline.running.session import at_work


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the job."""
    add_common(parser)
    add_period(parser)
    add_page(parser)
    parser.add_argument("--conf-file", metavar="FILE", help="what advise has written (default: advice.conf in --out)")
    parser.add_argument(
        "--json", action="store_true", help="print the rankings, storms and advice as JSON, and write no page"
    )


def add_page(parser: argparse.ArgumentParser) -> None:
    """Declare where the page goes."""
    parser.add_argument("--to", metavar="FILE", help="the page (default: report.html in --out)")


def run(options: argparse.Namespace) -> int:
    """Write the report and print its path, or print the rankings."""
    common, period = common_settings(options), given_period(options)
    # Nothing is written there with --json, which needs no disk.
    to = report_path(common.out, "report.html" if options.json else options.to)
    settings = ReportSettings(common, to, conf_path(common.out, options.conf_file), period=period)
    with at_work("report", common, writes=False) as spark:
        print(as_json(facts_of(spark, settings)) if options.json else f"report: {write_report(spark, settings)}")
    return ExitCode.OK
