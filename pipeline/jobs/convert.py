"""Copies tables of Parquet into another store, once; first carries out what an older version was about to do with them.

Rule: nothing is copied into a table that is there; one that was killed is run again, and goes on with the tables that
are not there yet. Tables that follow from the recorded trace (`replay_input`) are not copied: `whatif` makes them anew.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import CommonSettings, add_common, common_settings
from pipeline.core.paths import mounted
from pipeline.core.tables import TABLES
from pipeline.core.tables.whatif import REPLAY_INPUT
from pipeline.running.progress import at_work
from pipeline.store.hadoop import HadoopFiles
from pipeline.store.sinks import open_store, write_table

# Where version 0.1 wrote down what files it was about to move and to remove.
JOURNAL: Final = "_journal"
# A file of a store that is being copied into: from where.
UNDER_WAY: Final = "_convert"


def convert(spark: SparkSession, tables: str, common: CommonSettings) -> Mapping[str, int]:
    """Copy the tables under a directory; returns the rows of each. Raises PipelineError, then nothing was copied."""
    root, target_root = mounted(tables), mounted(common.out)
    if tables == common.out or (root is not None and root == target_root):
        raise PipelineError(f"--out {common.out}: got the directory of --tables, expected another")
    if root is not None:
        _finish(root)
    source = open_store(spark, CommonSettings(tables, "parquet", common.master, common.conf))
    target = open_store(spark, common)
    found = {name: rows for name, table in TABLES.items() if (rows := source.read(table)) is not None}
    found.pop(REPLAY_INPUT.name, None)
    if not found:
        raise PipelineError(f"--tables {tables}: found no table, expected at least `events`")
    place = common.out if target_root is None else f"file://{target_root}"
    under_way = HadoopFiles(spark, place)
    there = [name for name in found if target.read(TABLES[name]) is not None]
    # A copy of a table is wholly there or not at all.
    if there and under_way.read(UNDER_WAY) != tables:
        raise PipelineError(f"--out {common.out}: got {', '.join(there)}, expected a store without them")
    under_way.replace(UNDER_WAY, tables)
    for name, rows in found.items():
        if name not in there:
            write_table(spark, common, TABLES[name], rows)
    under_way.delete(UNDER_WAY)
    return {name: rows.count() for name, rows in found.items()}


def _finish(root: Path) -> None:
    """Execute the entries of the journal, each of which was decided when it got its name; the entry goes last."""
    for entry in sorted(path for path in (root / JOURNAL).glob("*.json") if not path.name.startswith(".")):
        change = json.loads(entry.read_text())
        for source, target in change["moves"]:
            if (root / source).exists():
                (root / target).parent.mkdir(parents=True, exist_ok=True)
                (root / source).replace(root / target)
        for name in change["removes"]:
            (root / name).unlink(missing_ok=True)
        entry.unlink()


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
