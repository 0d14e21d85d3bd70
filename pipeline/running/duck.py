"""DuckDB for sums over Parquet files of this machine: the same SQL as in Spark, in a third of the time and memory.

Rule: DuckDB reads and sums, and Spark writes tables. Rows that do not fit into memory go beside the results.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.model import MIB

__all__ = ["summed"]


@contextmanager
def summed(
    files: Sequence[str], columns: Mapping[str, str], queries: Mapping[str, str], place: Path, threads: int, memory: int
) -> Iterator[Mapping[str, Path]]:
    """Run queries over the view `events`; yields a Parquet file of rows for each, until the block ends.

    `columns` are the names and SQL types of `events`: older files lack some, which are null then. `memory` in bytes.
    """
    place.mkdir(parents=True)
    try:
        with duckdb.connect(config={"threads": threads, "memory_limit": f"{memory // MIB}MiB"}) as database:
            database.execute(f"SET temp_directory = '{_quoted(place / 'spill')}'")
            rows = database.read_parquet(list(files), union_by_name=True, hive_partitioning=False)
            found = set(rows.columns)
            chosen = (name if name in found else f"cast(NULL AS {kind}) AS {name}" for name, kind in columns.items())
            rows.project(", ".join(chosen)).create_view("events")
            made = {name: place / f"{name}.parquet" for name in queries}
            for name, query in queries.items():
                database.execute(f"COPY ({query}) TO '{_quoted(made[name])}' (FORMAT parquet)")
        yield made
    except duckdb.IOException as error:
        why = f"a table was compacted meanwhile (run again), or the disk is full: {error}"
        raise PipelineError(why, ExitCode.FAILED) from error
    except duckdb.Error as error:
        raise PipelineError(f"duckdb: {error}; --engine spark does without it", ExitCode.FAILED) from error
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
