"""The one who changes the tables of a directory: by its lock on a mounted one, by a lease elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from pipeline.core.paths import mounted
from pipeline.store.hadoop import HadoopFiles
from pipeline.store.lease import LEASE, Clock, lease_of, lock_of, this_process

__all__ = ["only_writer"]


@contextmanager
def only_writer(spark: SparkSession, root: str, clock: Clock | None = None) -> Iterator[Callable[[], None]]:
    """Wait for who writes, and be the one; raises PipelineError with its name if it does not end.

    Gives what is to be called before each commit: it raises PipelineError if another may be the writer by now.
    """
    owner = f"{spark.conf.get('spark.app.name')}, {this_process()},"
    if (directory := mounted(root)) is not None:
        directory.mkdir(parents=True, exist_ok=True)
        with lock_of(directory, owner, clock=clock):
            yield _nothing
        return
    with lease_of(HadoopFiles(spark, f"{root}/{LEASE}"), owner, root, clock) as held:
        yield held.require


def _nothing() -> None:
    """A lock of the file system needs no look: the kernel keeps it."""
