"""The job `catalog`: SQL that has Spark's catalog, Trino or DuckDB know the tables by name. Nothing is run."""

import argparse
import os
import re
import sys

from pipeline.catalog import DIALECTS, OFFERED, statements
from pipeline.errors import ExitCode, PipelineError
from pipeline.options import add_common, common_settings
from pipeline.paths import mounted

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the job."""
    add_common(parser)
    parser.add_argument("--dialect", choices=DIALECTS, default="duckdb", help="whose SQL (default: %(default)s)")
    parser.add_argument("--schema", default="pulsar_proxy", metavar="NAME", help="of the tables (default: %(default)s)")
    parser.add_argument("--tables", metavar="T,T,...", help="which (default: those that are there if --out is mounted)")


def run(options: argparse.Namespace) -> int:
    """Print the statements; raises PipelineError."""
    common = common_settings(options)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", options.schema):
        raise PipelineError(f"--schema: got {options.schema!r}, expected letters, digits and underscores")
    directory = mounted(common.out)
    place = common.out if directory is None else str(directory)
    if "'" in place or "`" in place:
        raise PipelineError(f"--out: got {place}, expected no quotation mark in it")
    names = OFFERED if options.tables is None else tuple(options.tables.split(","))
    if unknown := [name for name in names if name not in OFFERED]:
        raise PipelineError(f"--tables: got {', '.join(unknown)}, expected some of {', '.join(OFFERED)}")
    if options.tables is None and directory is not None:
        names = tuple(name for name in names if (directory / name).is_dir())
    try:
        for statement in statements(options.dialect, options.schema, place, common.format, names):
            print(f"{statement};")
        sys.stdout.flush()
    except BrokenPipeError:
        # `| head` has seen enough; the interpreter must not try to write the rest when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.OK
