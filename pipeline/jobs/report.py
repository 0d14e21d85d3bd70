"""The job `report`: one HTML page with everything that the other jobs have found."""

import argparse

from pipeline.errors import ExitCode
from pipeline.options import add_common, common_settings
from pipeline.report.write import ReportSettings, report_path, write_report
from pipeline.session import open_session

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the job."""
    add_common(parser)
    parser.add_argument("--to", metavar="FILE", help="the page (default: report.html in --out)")


def run(options: argparse.Namespace) -> int:
    """Write the report and print its path."""
    common = common_settings(options)
    settings = ReportSettings(common.out, report_path(common.out, options.to), common.format)
    summary = write_report(open_session("report", common), settings)
    print(f"report  {summary.path}  ({summary.charts} charts, {summary.bytes / 1e6:.1f} MB)")
    return ExitCode.OK
