"""Own whose the tables of `usage` are, a batch's or a stream's, and what both kinds make of them.

Rule: the two do not mix in one directory: whatever is there is either a batch's or a stream's, by a mark that the
stream leaves before its first batch.
"""

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.core.errors import PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.schema import table_schema
from pipeline.core.tables.slowed import SLOWED
from pipeline.core.tables.usage import USAGE
from pipeline.store.protocol import Store
from pipeline.store.sinks import read_table
from pipeline.transforms.slowed import THROTTLE, slowed
from pipeline.transforms.usage import add_usage
from pipeline.usage.settings import UsageSettings, UsageSummary

STREAM: Final = "usage"
ANEW: Final = "to begin anew delete its `usage`, `waits` and the checkpoint"
OF_STREAM: Final = f"got a table `usage` that a stream adds to, expected to go on with --stream; {ANEW}"


class StreamOwnsError(PipelineError):
    """A batch was to replace what a stream adds to."""


def require_owner(store: Store, settings: UsageSettings, *, stream: bool) -> None:
    """Refuse to add a stream's parts to a batch's rows, or to replace a stream's."""
    # Tables of before the mark have parts only.
    if not stream and (store.stream_of(USAGE) == STREAM or has_parts(store, of_stream=True)):
        raise StreamOwnsError(f"--out {settings.common.out}: {OF_STREAM}")
    if stream and has_parts(store, of_stream=False):
        raise PipelineError(
            f"--out {settings.common.out}: got a table `usage` that was not made by a stream, expected none: without"
            " --stream it is made anew; to have a stream do it delete `usage` and `waits`"
        )


def has_parts(store: Store, *, of_stream: bool) -> bool:
    """Return whether `usage` has rows of that kind."""
    usage = store.read(USAGE)
    return usage is not None and not usage.where("part > 0" if of_stream else "part = 0").isEmpty()


def read_usage(spark: SparkSession, common: CommonSettings) -> DataFrame:
    """Return `usage` with its parts added up; raises PipelineError if no job has written it yet."""
    return add_usage(read_table(spark, common, USAGE))


def read_waits(spark: SparkSession, common: CommonSettings) -> DataFrame:
    """Return `waits` with its parts added up; raises PipelineError if no job has written it yet."""
    return add_waits(read_table(spark, common, WAITS))


def decided(spark: SparkSession, events: DataFrame) -> DataFrame:
    """Make `slowed`. Events without a decision, which are most tables, are not read for it: file statistics tell."""
    if not events.where(F.col("kind") == THROTTLE).count():
        return spark.createDataFrame([], table_schema(SLOWED))
    return slowed(events)


def summary_of(usage: DataFrame) -> UsageSummary:
    """Return what `usage` holds in sum, for the line at the end of the job."""
    names = ("requests", "refused", "watch_frames", "heap_byte_seconds")
    found = usage.agg(F.count(F.lit(1)).alias("rows"), *(F.sum(name).alias(name) for name in names)).first()
    assert found is not None
    return UsageSummary(found["rows"], *(found[name] or 0 for name in names))
