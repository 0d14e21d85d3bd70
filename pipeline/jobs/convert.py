"""The job `convert`: tables of Parquet, also those that an older version wrote, into another store, once."""

import argparse

from pipeline.convert import convert
from pipeline.errors import ExitCode
from pipeline.options import add_common, common_settings
from pipeline.progress import at_work

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the job."""
    add_common(parser)
    parser.add_argument(
        "--tables", required=True, metavar="DIR", help="directory or URI of the tables of Parquet that are copied"
    )


def run(options: argparse.Namespace) -> int:
    """Run the job; raises PipelineError."""
    common = common_settings(options)
    with at_work("convert", common) as spark:
        rows = convert(spark, options.tables.rstrip("/"), common)
    print(f"convert: {', '.join(f'{name} {count:,}' for name, count in rows.items())}")
    return ExitCode.OK
